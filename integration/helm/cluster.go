package main

import (
	"context"
	"os"

	"k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"
)

// A cluster with these objects, for the function `lookup` of templates.
type cluster []unstructured.Unstructured

// clusterOf reads a file with a list of objects.
func clusterOf(file string) cluster {
	text, err := os.ReadFile(file)
	check(err)
	var objects []map[string]any
	check(yaml.Unmarshal(text, &objects))
	found := cluster{}
	for _, object := range objects {
		found = append(found, unstructured.Unstructured{Object: object})
	}
	return found
}

// GetClientFor is of Helm's engine.ClientProvider.
func (all cluster) GetClientFor(apiVersion, kind string) (dynamic.NamespaceableResourceInterface, bool, error) {
	of := resource{kind: kind}
	for _, object := range all {
		if object.GetAPIVersion() == apiVersion && object.GetKind() == kind {
			of.objects = append(of.objects, object)
		}
	}
	return of, true, nil
}

type resource struct {
	// What templates do not call.
	dynamic.NamespaceableResourceInterface
	kind    string
	objects cluster
}

func (of resource) Namespace(namespace string) dynamic.ResourceInterface {
	in := resource{kind: of.kind}
	for _, object := range of.objects {
		if object.GetNamespace() == namespace {
			in.objects = append(in.objects, object)
		}
	}
	return in
}

func (of resource) Get(_ context.Context, name string, _ v1.GetOptions, _ ...string) (*unstructured.Unstructured, error) {
	for _, object := range of.objects {
		if object.GetName() == name {
			return &object, nil
		}
	}
	return nil, errors.NewNotFound(schema.GroupResource{Resource: of.kind}, name)
}
