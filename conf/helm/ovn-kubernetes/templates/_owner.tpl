{{- /* Whose an object of the cluster is: (list CONTEXT API-VERSION KIND NAMESPACE NAME) is "nobody's", "ours" or "another" release's or
person's. Without a cluster, in `helm template`, and with skipCallToK8s, everything is nobody's. */ -}}
{{- define "owner" -}}
{{- $context := index . 0 -}}
{{- $found := dict -}}
{{- if not $context.Values.skipCallToK8s -}}
{{- $found = lookup (index . 1) (index . 2) (index . 3) (index . 4) -}}
{{- end -}}
{{- $annotations := ($found.metadata | default dict).annotations | default dict -}}
{{- $release := printf "%s/%s" $context.Release.Namespace $context.Release.Name -}}
{{- if not $found -}}
nobody's
{{- else if eq (printf "%s/%s" (index $annotations "meta.helm.sh/release-namespace") (index $annotations "meta.helm.sh/release-name")) $release -}}
ours
{{- else -}}
another
{{- end -}}
{{- end -}}
