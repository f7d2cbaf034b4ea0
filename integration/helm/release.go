package main

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"time"

	"helm.sh/helm/v3/pkg/action"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/cli"
	"helm.sh/helm/v3/pkg/release"
)

// How long Helm waits for what it has made: its own default is five minutes, a test's patience is less.
const patience = 150 * time.Second

// A release in the cluster of $KUBECONFIG.
type helm struct{ *action.Configuration }

func connect() helm {
	settings := cli.New()
	settings.SetNamespace(namespace)
	configuration := new(action.Configuration)
	log := func(format string, values ...any) {
		if os.Getenv("HELM_DEBUG") != "" {
			fmt.Fprintf(os.Stderr, format+"\n", values...)
		}
	}
	check(configuration.Init(settings.RESTClientGetter(), namespace, "secret", log))
	return helm{configuration}
}

func (of helm) install(chart string, files []string) {
	install := action.NewInstall(of.Configuration)
	install.ReleaseName, install.Namespace = name, namespace
	install.Wait, install.Timeout = true, patience
	loaded, err := loader.Load(chart)
	check(err)
	done, err := install.Run(loaded, valuesOf(files))
	check(err)
	say(done)
}

func (of helm) upgrade(chart string, files []string) {
	upgrade := action.NewUpgrade(of.Configuration)
	upgrade.Namespace, upgrade.ReuseValues = namespace, true
	upgrade.Wait, upgrade.Timeout = true, patience
	loaded, err := loader.Load(chart)
	check(err)
	done, err := upgrade.Run(name, loaded, valuesOf(files))
	check(err)
	say(done)
}

func (of helm) rollback(revision string) {
	rollback := action.NewRollback(of.Configuration)
	rollback.Wait, rollback.Timeout = true, patience
	version, err := strconv.Atoi(revision)
	check(err)
	rollback.Version = version
	check(rollback.Run(name))
	last, err := of.Releases.Last(name)
	check(err)
	say(last)
}

func (of helm) uninstall() {
	uninstall := action.NewUninstall(of.Configuration)
	uninstall.Wait, uninstall.Timeout = true, patience
	done, err := uninstall.Run(name)
	check(err)
	say(done.Release)
	fmt.Print(done.Info)
}

// test runs the pods of the hooks, and prints what they say, also if one fails.
func (of helm) test() {
	test := action.NewReleaseTesting(of.Configuration)
	test.Namespace, test.Timeout = namespace, patience
	done, failure := test.Run(name)
	if done != nil {
		check(test.GetPodLogs(io.Writer(os.Stdout), done))
	}
	check(failure)
}

func (of helm) history() {
	all, err := action.NewHistory(of.Configuration).Run(name)
	check(err)
	for _, each := range all {
		say(each)
	}
}

func valuesOf(files []string) map[string]any {
	if len(files) == 0 {
		return nil
	}
	values, err := chartutil.ReadValuesFile(files[0])
	check(err)
	return values
}

func say(of *release.Release) {
	fmt.Printf("%s revision %d: %s\n", of.Name, of.Version, of.Info.Status)
}
