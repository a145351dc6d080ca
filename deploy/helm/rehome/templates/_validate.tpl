{{/* Contradictions fail rendering. Each message names the values and a valid alternative. */}}
{{- define "rehome.validate" -}}
{{- include "rehome.validateMode" . -}}
{{- include "rehome.validateBus" . -}}
{{- include "rehome.validateScaling" . -}}
{{- include "rehome.validateServing" . -}}
{{- include "rehome.validateRest" . -}}
{{- include "rehome.validatePolicy" . -}}
{{- end }}

{{- define "rehome.validateMode" -}}
{{- $kind := include "rehome.kind" . -}}
{{- $distributed := eq .Values.mode "distributed" -}}
{{- if and $distributed (ne $kind "Deployment") -}}
{{- fail (printf "mode: want all-in-one with kind %s, which runs all roles in one process, got distributed%s" $kind (ternary "" (printf "; the kind is %s because of %s" $kind (include "rehome.cronJobKeys" .)) (not (empty .Values.kind)))) -}}
{{- end -}}
{{- if and $distributed (not (include "rehome.external" .)) -}}
{{- fail "mode: distributed needs nats.enabled, or nats.url for external servers; got neither" -}}
{{- end -}}
{{- if and $distributed (ne (int .Values.replicas) 1) -}}
{{- fail (printf "replicas: in the mode distributed set the replicas of each role, such as watcher.replicas; got replicas: %d" (int .Values.replicas)) -}}
{{- end -}}
{{- if and .Values.dispatcher.enabled (not $distributed) -}}
{{- fail "dispatcher.enabled: only for the mode distributed; in the mode all-in-one the process has a dispatcher" -}}
{{- end -}}
{{- end }}

{{- define "rehome.validateBus" -}}
{{- $kind := include "rehome.kind" . -}}
{{- if and .Values.nats.enabled .Values.nats.url -}}
{{- fail (printf "nats: want enabled for servers of this release, or url for external servers; got both, url %s" .Values.nats.url) -}}
{{- end -}}
{{- if and (ne $kind "Deployment") (include "rehome.external" .) -}}
{{- fail (printf "nats: kind %s has no bus; want neither nats.enabled nor nats.url" $kind) -}}
{{- end -}}
{{- if and .Values.nats.url (not (regexMatch "^(nats|tls|ws|wss)://[^ ]+$" .Values.nats.url)) -}}
{{- fail (printf "nats.url: want addresses such as tls://nats.nats.svc:4222, got %q" .Values.nats.url) -}}
{{- end -}}
{{- if and .Values.nats.enabled (or (ne .Values.nats.login "nkey") (not .Values.nats.ca) (not .Values.nats.clientCertificate)) -}}
{{- fail "nats.login, nats.ca and nats.clientCertificate: only for external servers; the servers of the chart need nkey, true, and true" -}}
{{- end -}}
{{- if and .Values.nats.enabled (gt (int .Values.nats.replicas) 3) -}}
{{- fail (printf "nats.replicas: want 1 or 3 with nats.enabled, which runs three servers; got %d" (int .Values.nats.replicas)) -}}
{{- end -}}
{{- if and .Values.persistence.enabled (or (ne $kind "Deployment") (include "rehome.external" .)) -}}
{{- fail "persistence.enabled: only for kind Deployment without nats, which has an embedded bus" -}}
{{- end -}}
{{- if and .Values.persistence.enabled (gt (int .Values.replicas) 1) -}}
{{- fail (printf "replicas: want 1 with persistence.enabled, because only one process can open the files of the bus, got %d; without persistence each replica has a bus, and with nats they share one" (int .Values.replicas)) -}}
{{- end -}}
{{- if and .Values.requests.enabled (gt (int .Values.replicas) 1) (not (include "rehome.external" .)) -}}
{{- fail (printf "requests.enabled: want replicas: 1, or nats, which the replicas share; got replicas: %d; a standby would accept requests on its own bus and not process them until it leads" (int .Values.replicas)) -}}
{{- end -}}
{{- end }}

{{- define "rehome.validateScaling" -}}
{{- $distributed := eq .Values.mode "distributed" -}}
{{- if and .Values.functions.autoscaling.enabled .Values.keda.enabled -}}
{{- fail "functions.autoscaling.enabled and keda.enabled: want one of them, got both, which would undo each other's changes" -}}
{{- end -}}
{{- if and (or .Values.functions.autoscaling.enabled .Values.keda.enabled) (not $distributed) -}}
{{- fail "functions.autoscaling.enabled and keda.enabled: only for the mode distributed, where functions have a Deployment" -}}
{{- end -}}
{{- if and .Values.keda.enabled (not .Values.nats.enabled) -}}
{{- fail "keda.enabled: want nats.enabled, whose servers report the waiting scopes; for external servers create your own ScaledObject" -}}
{{- end -}}
{{- if and .Values.knative.enabled (empty .Values.knative.strategies) -}}
{{- fail "knative.strategies: want the strategies for Knative, such as [RemoveDuplicates], got none" -}}
{{- end -}}
{{- if and .Values.knative.enabled (ne (include "rehome.kind" .) "Deployment") -}}
{{- fail (printf "knative.enabled: kind %s calls no external functions; want kind Deployment" (include "rehome.kind" .)) -}}
{{- end -}}
{{- $known := without (include "rehome.strategies" . | fromJsonArray) "Request" -}}
{{- range .Values.knative.strategies -}}
{{- if not (has . $known) -}}
{{- fail (printf "knative.strategies: want some of %s, got %s" (join ", " $known) .) -}}
{{- end -}}
{{- end -}}
{{- range .Values.functions.strategies -}}
{{- if not (has . (include "rehome.strategies" $ | fromJsonArray)) -}}
{{- fail (printf "functions.strategies: want some of %s, got %s" (join ", " (include "rehome.strategies" $ | fromJsonArray)) .) -}}
{{- end -}}
{{- end -}}
{{- end }}

{{- define "rehome.validatePolicy" -}}
{{- $asked := include "rehome.asked" . | fromJsonArray -}}
{{- if and $asked (eq .Values.mode "distributed") (not (has "dispatcher" (include "rehome.parts" . | fromJsonArray))) -}}
{{- fail (printf "dispatcher.enabled: want true with functions in the policy, %s, because only the dispatcher calls them in the mode distributed; got false" (join ", " $asked)) -}}
{{- end -}}
{{- end }}

{{- define "rehome.validateServing" -}}
{{- if and (eq .Values.metrics.tls "files") (not .Values.metrics.tlsSecret) -}}
{{- fail "metrics.tlsSecret: want the Secret with tls.crt and tls.key, because metrics.tls is files; got none" -}}
{{- end -}}
{{- if and .Values.metrics.tlsSecret (ne .Values.metrics.tls "files") -}}
{{- fail (printf "metrics.tls: want files with metrics.tlsSecret, got %s" .Values.metrics.tls) -}}
{{- end -}}
{{- if and .Values.metrics.auth (eq (include "rehome.tls" .) "off") -}}
{{- fail "metrics.auth: tokens need TLS: want metrics.tls self-signed or files, got off" -}}
{{- end -}}
{{- if and .Values.metrics.http2 (eq (include "rehome.tls" .) "off") (not .Values.requests.enabled) -}}
{{- fail "metrics.http2: needs TLS: want metrics.tls self-signed or files, or requests.enabled; got off and false" -}}
{{- end -}}
{{- if and .Values.metrics.profiles (not .Values.metrics.auth) -}}
{{- fail "metrics.profiles: want metrics.auth, because profiles show the memory of the process; got off" -}}
{{- end -}}
{{- $flags := include "rehome.flags" . | fromJson -}}
{{- if and $flags.tls (ne (include "rehome.tls" .) "files") -}}
{{- fail (printf "cmdOptions.tls-cert-file: want metrics.tls off or files with it, got %s" .Values.metrics.tls) -}}
{{- end -}}
{{- if and $flags.tls .Values.metrics.tlsSecret -}}
{{- fail "cmdOptions.tls-cert-file and metrics.tlsSecret: want one of them, got both" -}}
{{- end -}}
{{- if and $flags.tls (not (and $flags.env.REHOME_HTTP_CERT_FILE $flags.env.REHOME_HTTP_KEY_FILE)) -}}
{{- fail "cmdOptions.tls-cert-file and cmdOptions.tls-private-key-file: want both, got one of them" -}}
{{- end -}}
{{- if and .Values.requests.enabled (ne (include "rehome.kind" .) "Deployment") -}}
{{- fail (printf "requests.enabled: kind %s exits and takes no requests; want kind Deployment" (include "rehome.kind" .)) -}}
{{- end -}}
{{- if and .Values.certManager.issuer.name (ne .Values.metrics.tls "files") (not (and .Values.requests.enabled (eq .Values.requests.tls "files"))) -}}
{{- fail "certManager.issuer.name: want metrics.tls files, or requests.enabled with requests.tls files, so that there is a Secret to fill; got neither" -}}
{{- end -}}
{{- if and .Values.certManager.issuer.name .Values.requests.enabled (eq .Values.requests.tls "files") (eq .Values.metrics.tls "files") (eq .Values.metrics.tlsSecret .Values.requests.tlsSecret) -}}
{{- fail (printf "certManager.issuer.name: want different Secrets in metrics.tlsSecret and requests.tlsSecret, got %s twice" .Values.metrics.tlsSecret) -}}
{{- end -}}
{{- if and (eq .Values.requests.tls "files") (not .Values.requests.tlsSecret) -}}
{{- fail "requests.tlsSecret: want the Secret with tls.crt and tls.key, because requests.tls is files; got none" -}}
{{- end -}}
{{- end }}

{{- define "rehome.validateRest" -}}
{{- if regexMatch "(^|/)descheduler$" .Values.image.repository -}}
{{- fail (printf "image.repository: %s is the image of the descheduler; want ghcr.io/rehome-dev/rehome or your mirror, and its image.tag" .Values.image.repository) -}}
{{- end -}}
{{- $pdb := .Values.podDisruptionBudget -}}
{{- if and $pdb.enabled (ne (toString $pdb.minAvailable) "") (ne (toString $pdb.maxUnavailable) "") -}}
{{- fail (printf "podDisruptionBudget: want minAvailable or maxUnavailable, got both, %v and %v" $pdb.minAvailable $pdb.maxUnavailable) -}}
{{- end -}}
{{- with .Values.leaderElection.leaseDuration -}}
{{- if lt (include "rehome.milliseconds" (list "leaderElection.leaseDuration" .) | int) 3000 -}}
{{- fail (printf "leaderElection.leaseDuration: want at least 3s, got %s" .) -}}
{{- end -}}
{{- end -}}
{{- if and (not .Values.serviceAccount.create) (not .Values.serviceAccount.name) (eq .Values.mode "distributed") -}}
{{- fail "serviceAccount.name: the mode distributed needs a ServiceAccount for each role, NAME-watcher and so on; got serviceAccount.create off and no name" -}}
{{- end -}}
{{- if and .Values.livenessProbe (or .Values.livenessProbe.tcpSocket .Values.livenessProbe.grpc) -}}
{{- fail "livenessProbe: want httpGet, whose port and scheme the chart sets, or exec; got tcpSocket or grpc" -}}
{{- end -}}
{{- end }}

{{/* Values that have no effect, one sentence each, as JSON. */}}
{{- define "rehome.ignored" -}}
{{- $ignored := (include "rehome.flags" . | fromJson).ignored -}}
{{- $kind := include "rehome.kind" . -}}
{{- if eq $kind "Deployment" -}}
{{- with include "rehome.cronJobKeys" . -}}
{{- $ignored = append $ignored (printf "%s: only for CronJobs, and the kind is Deployment" .) -}}
{{- end -}}
{{- else -}}
{{- if ne $kind "CronJob" -}}
{{- with include "rehome.cronJobKeys" . -}}
{{- $ignored = append $ignored (printf "%s: only for CronJobs, and the kind is Job" .) -}}
{{- end -}}
{{- end -}}
{{- if .Values.deschedulingInterval -}}
{{- $ignored = append $ignored (printf "deschedulingInterval: a %s evaluates once" $kind) -}}
{{- end -}}
{{- if gt (int .Values.replicas) 1 -}}{{- $ignored = append $ignored (printf "replicas: a %s has one pod at a time" $kind) -}}{{- end -}}
{{- if .Values.serviceMonitor.enabled -}}{{- $ignored = append $ignored (printf "serviceMonitor: a %s serves no metrics" $kind) -}}{{- end -}}
{{- end -}}
{{- if and (eq $kind "Deployment") (hasKey .Values.cmdOptions "enable-http2") (eq (include "rehome.tls" .) "off") (not .Values.requests.enabled) -}}
{{- $ignored = append $ignored "cmdOptions.enable-http2: HTTP/2 needs TLS, and metrics.tls is off" -}}
{{- end -}}
{{- $election := .Values.leaderElection -}}
{{- if and (hasKey $election "enabled") (not $election.enabled) -}}
{{- $ignored = append $ignored "leaderElection.enabled: leader election is always on" -}}
{{- end -}}
{{- range list "renewDeadline" "retryPeriod" "resourceLock" "resourceName" -}}
{{- if hasKey $election . -}}
{{- $ignored = append $ignored (printf "leaderElection.%s: derived from leaseDuration, or fixed" .) -}}
{{- end -}}
{{- end -}}
{{- if eq (toJson .Values.command) `["/bin/descheduler"]` -}}
{{- $ignored = append $ignored "command: /bin/descheduler is the program of the descheduler's image; the chart runs the program of its own image" -}}
{{- end -}}
{{- with (.Values.livenessProbe | default dict).httpGet -}}
{{- if or (hasKey . "port") (hasKey . "scheme") -}}
{{- $ignored = append $ignored "livenessProbe.httpGet.port and scheme: the chart sets both" -}}
{{- end -}}
{{- end -}}
{{- with .Values.deschedulingInterval -}}
{{- if and (eq $kind "Deployment") (lt (include "rehome.milliseconds" (list "deschedulingInterval" .) | int) 60000) -}}
{{- $ignored = append $ignored (printf "deschedulingInterval: %s counts as 1m, because Rehome reacts to changes at once" .) -}}
{{- end -}}
{{- end -}}
{{- toJson $ignored -}}
{{- end }}
