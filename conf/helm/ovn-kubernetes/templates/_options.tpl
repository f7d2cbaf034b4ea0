{{- /* A section of ovn_k8s.conf: (list NAME (list KEY VALUE) …). Empty values are left out, and so is a section without others. */ -}}
{{- define "section" -}}
{{- $lines := list -}}
{{- range rest . -}}
{{- $value := index . 1 -}}
{{- if kindIs "float64" $value -}}{{- $value = int64 $value -}}{{- end -}}
{{- if not (or (kindIs "invalid" $value) (eq (toString $value) "")) -}}
{{- $lines = append $lines (printf "%s=%v" (index . 0) $value) -}}
{{- end -}}
{{- end -}}
{{- with $lines -}}
[{{ first $ }}]
{{ join "\n" . }}
{{ end -}}
{{- end -}}

{{- /* What control plane and nodes have to know alike. */ -}}
{{- define "options" -}}
{{- $values := .Values -}}
{{- $global := .Values.global -}}
{{- $zones := ne .Values.layout "central" | ternary true "" -}}
{{- $encap := ne (int64 $global.encapPort) 6081 | ternary $global.encapPort "" -}}
{{- $namespace := ne .Release.Namespace "ovn-kubernetes" | ternary .Release.Namespace "" -}}
{{- include "section" (list "default"
  (list "mtu" $values.mtu)
  (list "cluster-subnets" $values.podNetwork)
  (list "encap-port" $encap)
  (list "inactivity-probe" $global.remoteProbeInterval)
  (list "monitor-all" $global.monitorAll)
  (list "enable-lflow-cache" $global.enableLFlowCache)
  (list "lflow-cache-limit" $global.lFlowCacheLimit)
  (list "lflow-cache-limit-kb" $global.lFlowCacheLimitKb)
  (list "ofctrl-wait-before-clear" $global.ofctrlWaitBeforeClear)) -}}
{{- include "section" (list "kubernetes"
  (list "service-cidrs" $values.serviceNetwork)
  (list "apiserver" $values.k8sAPIServer)
  (list "ovn-config-namespace" $namespace)
  (list "no-hostsubnet-nodes" $global.noHostSubnetLabel)
  (list "ovn-empty-lb-events" $global.emptyLbEvents)
  (list "disable-requestedchassis" $global.disableRequestedchassis)) -}}
{{- include "section" (list "ovnnorth" (list "address" (include "north" .))) -}}
{{- include "section" (list "ovnsouth" (list "address" (include "south" .))) -}}
{{- include "section" (list "gateway"
  (list "mode" $global.gatewayMode)
  (list "interface" $global.extGatewayNetworkInterface)
  (list "disable-forwarding" $global.disableForwarding)
  (list "disable-snat-multiple-gws" $global.disableSnatMultipleGws)
  (list "v4-join-subnet" $global.v4JoinSubnet)
  (list "v6-join-subnet" $global.v6JoinSubnet)
  (list "v4-masquerade-subnet" $global.v4MasqueradeSubnet)
  (list "v6-masquerade-subnet" $global.v6MasqueradeSubnet)) -}}
{{- include "section" (list "ovnkubernetesfeature"
  (list "enable-interconnect" $zones)
  (list "enable-stateless-netpol" $global.enableStatelessNetworkPolicy)
  (list "enable-svc-template-support" $global.enableSvcTemplate)) -}}
{{- include "section" (list "logging" (list "acl-logging-rate-limit" $global.aclLoggingRateLimit)) -}}
{{- end -}}
