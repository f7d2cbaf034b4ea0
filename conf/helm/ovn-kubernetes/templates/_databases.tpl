{{- /* Addresses of the databases for their clients. */ -}}
{{- define "north" -}}
{{- include "addresses" (list . .Values.databases.north .Values.global.nbPort) -}}
{{- end -}}

{{- define "south" -}}
{{- include "addresses" (list . .Values.databases.south .Values.global.sbPort) -}}
{{- end -}}

{{- define "addresses" -}}
{{- $databases := (index . 0).Values.databases -}}
{{- if eq $databases.mode "external" -}}
{{- index . 1 -}}
{{- else -}}
{{- $port := index . 2 -}}
{{- $all := list -}}
{{- range $databases.nodes -}}
{{- $all = append $all (printf (contains ":" . | ternary "tcp:[%s]:%d" "tcp:%s:%d") . (int64 $port)) -}}
{{- end -}}
{{- join "," $all -}}
{{- end -}}
{{- end -}}
