// Calls CNI plugins as CRI-O does, with CRI-O's own package and the paths of a node.
//
//	ocicni add|check|del POD    what CRI-O does when it runs a pod's sandbox, shows its state, and stops it
//	ocicni gc [POD…]            what CRI-O does at its start, with the pods that it has
//	ocicni status               what CRI-O asks before it says that the node's network is ready
//
// POD is NAMESPACE/NAME/UID/SANDBOX/NETNS; the last has slashes. `add` and `check` print the CNI result.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"

	"github.com/cri-o/ocicni/pkg/ocicni"
)

func main() {
	if len(os.Args) < 2 {
		fail("usage: ocicni add|check|del POD | gc [POD…] | status")
	}
	verb, pods := os.Args[1], []*ocicni.PodNetwork{}
	for _, text := range os.Args[2:] {
		pods = append(pods, podOf(text))
	}
	plugin, err := ocicni.InitCNINoInotify("", "/etc/cni/net.d", "", "/opt/cni/bin")
	check(err)
	ctx := context.Background()
	switch {
	case verb == "status" && len(pods) == 0:
		check(plugin.StatusWithContext(ctx))
	case verb == "gc":
		check(plugin.GC(ctx, pods))
	case len(pods) != 1:
		fail(verb + " needs one pod")
	case verb == "add":
		show(plugin.SetUpPodWithContext(ctx, *pods[0]))
	case verb == "check":
		show(plugin.GetPodNetworkStatusWithContext(ctx, *pods[0]))
	case verb == "del":
		check(plugin.TearDownPodWithContext(ctx, *pods[0]))
	default:
		fail("unknown verb " + verb)
	}
}

func podOf(text string) *ocicni.PodNetwork {
	parts := strings.SplitN(text, "/", 5)
	if len(parts) != 5 {
		fail(text + " is not NAMESPACE/NAME/UID/SANDBOX/NETNS")
	}
	return &ocicni.PodNetwork{Namespace: parts[0], Name: parts[1], UID: parts[2], ID: parts[3], NetNS: parts[4]}
}

func show(results []ocicni.NetResult, err error) {
	check(err)
	for _, result := range results {
		text, err := json.Marshal(result.Result)
		check(err)
		fmt.Println(string(text))
	}
}

func check(err error) {
	if err != nil {
		fail(err.Error())
	}
}

func fail(text string) {
	fmt.Fprintln(os.Stderr, "ocicni: "+text)
	os.Exit(1)
}
