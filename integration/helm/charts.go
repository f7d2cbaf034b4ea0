// Does with a chart what `helm` does, and with a directory what `kustomize build` does, with their own packages.
//
// Without a cluster:
//
//	charts lint CHART                                    one problem a line; exit status 1 if there are any
//	charts template CHART [VALUES.yaml [OBJECTS.yaml]]   the objects that Helm would make, in the order in which it would,
//	                                                     in a cluster with these objects
//	charts kustomize DIRECTORY                           the objects that kustomize would build
//	charts tests CHART [VALUES.yaml [OBJECTS.yaml]]      the pods of `helm test`
//
// With that of $KUBECONFIG, in the chart's namespace; the release is $RELEASE, or has the chart's name:
//
//	charts install CHART [VALUES.yaml]                   helm install --wait
//	charts upgrade CHART [VALUES.yaml]                   helm upgrade --wait --reuse-values
//	charts rollback REVISION                             helm rollback --wait
//	charts uninstall                                     helm uninstall --wait
//	charts test                                          helm test --logs
//	charts history                                       helm history
package main

import (
	"cmp"
	"fmt"
	"os"
	"strings"

	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"helm.sh/helm/v3/pkg/lint"
	"helm.sh/helm/v3/pkg/release"
	"helm.sh/helm/v3/pkg/releaseutil"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
)

const namespace = "ovn-kubernetes"

var name = cmp.Or(os.Getenv("RELEASE"), "ovn-kubernetes")

func main() {
	if len(os.Args) < 2 {
		fail("a verb is missing")
	}
	verb, arguments := os.Args[1], os.Args[2:]
	argument := func() string {
		if len(arguments) == 0 {
			fail(verb + " needs an argument")
		}
		return arguments[0]
	}
	switch verb {
	case "lint":
		lintChart(argument())
	case "kustomize":
		kustomize(argument())
	case "template":
		manifests, _ := render(argument(), arguments[1:])
		for _, manifest := range manifests {
			show(manifest.Name, manifest.Content)
		}
	case "tests":
		_, hooks := render(argument(), arguments[1:])
		for _, hook := range hooks {
			show(hook.Path, hook.Manifest)
		}
	case "install":
		connect().install(argument(), arguments[1:])
	case "upgrade":
		connect().upgrade(argument(), arguments[1:])
	case "rollback":
		connect().rollback(argument())
	case "uninstall":
		connect().uninstall()
	case "test":
		connect().test()
	case "history":
		connect().history()
	default:
		fail("unknown verb " + verb)
	}
}

func lintChart(chart string) {
	messages := lint.All(chart, nil, namespace, true).Messages
	bad := false
	for _, message := range messages {
		fmt.Println(message)
		// Warnings, too: the only thing that is tolerated is advice (a missing icon).
		bad = bad || message.Severity > 1
	}
	if bad {
		os.Exit(1)
	}
}

// render makes the objects, and those of hooks: the tests are the only ones.
func render(path string, files []string) ([]releaseutil.Manifest, []*release.Hook) {
	chart, err := loader.Load(path)
	check(err)
	values, objects := chartutil.Values{}, cluster{}
	if len(files) > 0 {
		values, err = chartutil.ReadValuesFile(files[0])
		check(err)
	}
	if len(files) > 1 {
		objects = clusterOf(files[1])
	}
	options := chartutil.ReleaseOptions{Name: name, Namespace: namespace, Revision: 1, IsInstall: true}
	// Looks at the values with the chart's schema, too.
	all, err := chartutil.ToRenderValues(chart, values, options, chartutil.DefaultCapabilities)
	check(err)
	rendered, err := engine.RenderWithClientProvider(chart, all, objects)
	check(err)
	for file := range rendered {
		if strings.HasSuffix(file, ".txt") {
			delete(rendered, file)
		}
	}
	hooks, manifests, err := releaseutil.SortManifests(rendered, chartutil.DefaultVersionSet, releaseutil.InstallOrder)
	check(err)
	return manifests, hooks
}

func kustomize(directory string) {
	objects, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), directory)
	check(err)
	text, err := objects.AsYaml()
	check(err)
	fmt.Print(string(text))
}

func show(source, text string) {
	fmt.Printf("---\n# Source: %s\n%s\n", source, text)
}

func check(err error) {
	if err != nil {
		fail(err.Error())
	}
}

func fail(text string) {
	fmt.Fprintln(os.Stderr, "charts: "+text)
	os.Exit(1)
}
