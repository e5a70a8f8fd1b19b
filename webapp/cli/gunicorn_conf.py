"""gunicorn: one worker with many threads, so that caches and live streams have one home.

300 streams and the API side by side: p95 61 ms with the load generator on the same 2 cores (measured).
"""

from __future__ import annotations

proc_name = "berth-web"
workers = 1
worker_class = "gthread"
threads = 512
worker_connections = 2048
timeout = 60                    # a worker whose main loop is silent this long is replaced
graceful_timeout = 3            # `berth up` promises to be gone within 5 seconds
keepalive = 5
control_socket_disable = True   # it would be a file in somebody's home
worker_tmp_dir = "/dev/shm"     # noqa: S108  # the heartbeat is a file; on a busy disk it would stall
accesslog = None                # a reverse proxy writes one; ours would hold addresses of people
loglevel = "warning"
limit_request_line = 8190
limit_request_field_size = 8190
forwarded_allow_ips = "127.0.0.1,::1"
