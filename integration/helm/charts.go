// Does to a chart what `helm lint` and `helm template` do, with Helm's own packages: the whole of Helm takes minutes to build.
//
//	charts lint CHART                              one problem a line; exit status 1 if there are any
//	charts template CHART [VALUES.yaml]            the objects that Helm would make, in the order in which it would
//
// No cluster is asked.
package main

import (
	"fmt"
	"os"

	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"helm.sh/helm/v3/pkg/lint"
	"helm.sh/helm/v3/pkg/releaseutil"
)

const (
	release   = "ovn-kubernetes-node"
	namespace = "ovn-kubernetes"
)

func main() {
	if len(os.Args) < 3 || len(os.Args) > 4 {
		fail("usage: charts lint CHART | charts template CHART [VALUES.yaml]")
	}
	switch verb, chart := os.Args[1], os.Args[2]; verb {
	case "lint":
		lintChart(chart)
	case "template":
		template(chart, os.Args[3:])
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

func template(path string, valueFiles []string) {
	chart, err := loader.Load(path)
	check(err)
	values := chartutil.Values{}
	for _, file := range valueFiles {
		values, err = chartutil.ReadValuesFile(file)
		check(err)
	}
	options := chartutil.ReleaseOptions{Name: release, Namespace: namespace, Revision: 1, IsInstall: true}
	// Looks at the values with the chart's schema, too.
	render, err := chartutil.ToRenderValues(chart, values, options, chartutil.DefaultCapabilities)
	check(err)
	files, err := engine.Render(chart, render)
	check(err)
	for name := range files {
		if len(name) > 4 && name[len(name)-4:] == ".txt" {
			delete(files, name)
		}
	}
	_, manifests, err := releaseutil.SortManifests(files, chartutil.DefaultVersionSet, releaseutil.InstallOrder)
	check(err)
	for _, manifest := range manifests {
		fmt.Printf("---\n# Source: %s\n%s\n", manifest.Name, manifest.Content)
	}
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
