{{- /* Addresses of the databases for their clients. */ -}}
{{- define "north" -}}
{{- include "addresses" (list . "nb" .Values.databases.north .Values.global.nbPort) -}}
{{- end -}}

{{- define "south" -}}
{{- include "addresses" (list . "sb" .Values.databases.south .Values.global.sbPort) -}}
{{- end -}}

{{- /* Those of a node's zone beside the databases of all, on the node. */ -}}
{{- define "zone-address" -}}
unix:/var/run/ovn/zone/ovn{{ . }}_db.sock
{{- end -}}

{{- define "addresses" -}}
{{- $databases := (index . 0).Values.databases -}}
{{- if eq (index . 0).Values.layout "zones" -}}
unix:/var/run/ovn/ovn{{ index . 1 }}_db.sock
{{- else if eq $databases.mode "external" -}}
{{- index . 2 -}}
{{- else -}}
{{- $port := index . 3 -}}
{{- $all := list -}}
{{- range $databases.nodes -}}
{{- $all = append $all (printf (contains ":" . | ternary "tcp:[%s]:%d" "tcp:%s:%d") . (int64 $port)) -}}
{{- end -}}
{{- join "," $all -}}
{{- end -}}
{{- end -}}

{{- /* A DaemonSet of databases and ovn-northd: (list ROOT ZONES DIRECTORY), where DIRECTORY is that of its sockets and logs below the usual one. */ -}}
{{- define "databases" -}}
{{- $root := index . 0 -}}
{{- $zones := index . 1 -}}
{{- $name := $zones | ternary "ovn-kubernetes-zone-databases" "ovn-kubernetes-databases" -}}
{{- $beside := index . 2 -}}
{{- with $root -}}
apiVersion: apps/v1
kind: DaemonSet
metadata:
  name: {{ $name }}
  namespace: {{ .Release.Namespace }}
  labels:
    {{- include "labels" $name | nindent 4 }}
spec:
  selector:
    matchLabels:
      {{- include "labels" $name | nindent 6 }}
  updateStrategy:
    type: RollingUpdate
    rollingUpdate:
      maxUnavailable: {{ $zones | ternary .Values.node.maxUnavailable 1 }}
  template:
    metadata:
      labels:
        {{- include "labels" $name | nindent 8 }}
    spec:
      # They do not speak to the API server.
      automountServiceAccountToken: false
      # There is no other network yet, and clients know the nodes' addresses.
      hostNetwork: true
      dnsPolicy: Default
      {{- if $zones }}
      {{- include "placement" (list . .Values.node) | nindent 6 }}
      {{- else }}
      priorityClassName: system-cluster-critical
      {{- with include "pull-secrets" . }}
      {{- . | nindent 6 }}
      {{- end }}
      nodeSelector:
        {{- toYaml .Values.databases.nodeSelector | nindent 8 }}
      tolerations:
      - operator: Exists
      {{- end }}
      terminationGracePeriodSeconds: 30
      securityContext:
        {{- include "security" . | nindent 8 }}
      containers:
      {{- range list (list "nb-ovsdb" "nb" "OVN_Northbound") (list "sb-ovsdb" "sb" "OVN_Southbound") (list "ovn-northd" "" "") }}
      - name: {{ index . 0 }}
        {{- include "image" (list $root "ovnImage") | nindent 8 }}
        command: [/root/ovnkube.sh, {{ ne (index . 1) "" | ternary (printf "%s%s" ($zones | ternary "local-" "") (index . 0)) "run-ovn-northd" }}]
        env:
        {{- if $zones }}
        # The name of the zone.
        - name: K8S_NODE
          valueFrom:
            fieldRef:
              fieldPath: spec.nodeName
        {{- end }}
        - name: OVN_NORTH
          value: {{ $zones | ternary "unix:/var/run/ovn/ovnnb_db.sock" (include "north" $root) }}
        - name: OVN_SOUTH
          value: {{ $zones | ternary "unix:/var/run/ovn/ovnsb_db.sock" (include "south" $root) }}
        - name: K8S_NODE_IP
          valueFrom:
            fieldRef:
              fieldPath: status.hostIP
        readinessProbe:
          exec:
            {{- if index . 1 }}
            # As a member of its cluster, if there is one.
            command: [ovsdb-client, --timeout=5, wait, "unix:/var/run/ovn/ovn{{ index . 1 }}_db.sock", {{ index . 2 }}, connected]
            {{- else }}
            command: [ovn-appctl, --timeout=5, --target=ovn-northd, status]
            {{- end }}
          periodSeconds: 5
          timeoutSeconds: 10
        {{- with $root.Values.databases.resources }}
        resources:
          {{- toYaml . | nindent 10 }}
        {{- end }}
        securityContext:
          allowPrivilegeEscalation: false
          capabilities:
            drop: [ALL]
            # The directories belong to other users on some hosts.
            add: [CHOWN, DAC_OVERRIDE, FOWNER]
        volumeMounts:
        - name: ovn
          mountPath: /var/run/ovn
        - name: data
          mountPath: /var/lib/openvswitch
        - name: logs
          mountPath: /var/log/ovn
      {{- end }}
      volumes:
      {{- include "directories" (list
        (list "ovn" (printf "%s%s" .Values.hostPaths.ovn $beside))
        (list "data" .Values.hostPaths.data)
        (list "logs" (printf "%s%s" .Values.hostPaths.ovnLogs $beside))) | nindent 6 }}
{{- end -}}
{{- end -}}
