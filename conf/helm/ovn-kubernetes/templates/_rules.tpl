{{- /* What a controller reads and writes of policies and of this project's own kinds, as rules of a ClusterRole. */ -}}
{{- define "policy-rules" -}}
# Without their definitions in the cluster, there are none.
- apiGroups: [policy.networking.k8s.io]
  resources: [clusternetworkpolicies, adminnetworkpolicies, baselineadminnetworkpolicies]
  verbs: [list, watch]
# Their conditions, as Ready-In-Zone-ZONE.
- apiGroups: [policy.networking.k8s.io]
  resources: [clusternetworkpolicies/status, adminnetworkpolicies/status, baselineadminnetworkpolicies/status]
  verbs: [patch]
- apiGroups: [k8s.ovn.org]
  resources: [egressfirewalls, egressqoses]
  verbs: [list, watch]
- apiGroups: [k8s.ovn.org]
  resources: [egressfirewalls/status, egressqoses/status]
  verbs: [patch]
{{- end -}}
