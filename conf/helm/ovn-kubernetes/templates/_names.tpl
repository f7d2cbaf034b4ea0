{{- /* Labels of what belongs to a component, by its name. */ -}}
{{- define "labels" -}}
app.kubernetes.io/name: {{ . }}
{{- end -}}

{{- /* The image of a container: (list CONTEXT NAME-OF-THE-VALUE). */ -}}
{{- define "image" -}}
{{- $context := index . 0 -}}
{{- $image := index $context.Values (index . 1) -}}
{{- $all := $context.Values.global.image -}}
image: {{ printf "%s:%s" ($all.repository | default $image.repository) ($all.tag | default $image.tag | default $context.Chart.AppVersion) }}
imagePullPolicy: {{ $all.pullPolicy | default $image.pullPolicy }}
{{- end -}}

{{- define "pull-secrets" -}}
{{- $secrets := concat .Values.image.pullSecrets (compact (list .Values.global.imagePullSecretName)) -}}
{{- with $secrets -}}
imagePullSecrets:
{{- range . }}
- name: {{ . }}
{{- end }}
{{- end }}
{{- end -}}

{{- /* Where a pod may run: (list CONTEXT COMPONENT), a component with nodeSelector, tolerations and priorityClassName. */ -}}
{{- define "placement" -}}
{{- $component := index . 1 -}}
{{- with $component.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with include "pull-secrets" (index . 0) }}
{{ . }}
{{- end }}
{{- with $component.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $component.tolerations }}
tolerations:
  {{- toYaml . | nindent 0 }}
{{- end }}
{{- end -}}

{{- define "security" -}}
runAsUser: 0
runAsGroup: 0
seccompProfile:
  type: RuntimeDefault
{{- with .Values.seLinuxOptions }}
seLinuxOptions:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- /* Volumes of directories of the node: (list (list NAME PATH) …). */ -}}
{{- define "directories" -}}
{{- range . }}
- name: {{ index . 0 }}
  hostPath:
    path: {{ index . 1 }}
    type: DirectoryOrCreate
{{- end }}
{{- end -}}
