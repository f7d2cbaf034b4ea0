{{- define "labels" -}}
app.kubernetes.io/name: ovn-kubernetes-node
{{- end -}}
