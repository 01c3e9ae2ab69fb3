"""The hub of a class on one Linux machine with systemd: for the teacher to read and to change.

``sudo jupyterhub -f classroom/jupyterhub/jupyterhub_config.py``; README.md beside it explains each choice.
"""

import os
import shutil
import sys
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(CHECKOUT))
from classroom import sizes  # noqa: E402

c = get_config()  # type: ignore[name-defined]  # noqa: F821
memory = sizes.limit_mib(lessons=sizes.EVERYDAY) * 2**20  # enough for the hungriest of these lessons

# Who may come in: accounts of this machine that are in one of these groups. Both groups have to exist.
c.JupyterHub.authenticator_class = "pam"
c.PAMAuthenticator.allowed_groups = {"learners", "teachers"}
c.PAMAuthenticator.admin_groups = {"teachers"}

# Where the hub is reached. Behind a web server that has a certificate it stays on this machine.
c.JupyterHub.bind_url = "http://127.0.0.1:8000"
if not shutil.which("configurable-http-proxy"):  # that of the extra "classroom", if it is not on the path
    run = "from configurable_http_proxy.cli import main; main()"
    c.ConfigurableHTTPProxy.command = [sys.executable, "-c", run]

# What a learner may take. One process that asks for too much gets an error, and the kernel stays; together a
# learner's processes get no more than the hub's limit.
c.JupyterHub.spawner_class = "systemd"
c.Spawner.mem_limit = memory
c.Spawner.cpu_limit = 2.0
c.SystemdSpawner.unit_extra_properties = {"LimitDATA": str(memory), "LimitFSIZE": "2G", "TasksMax": "512"}
c.SystemdSpawner.isolate_tmp = True

# What a learner finds: an own copy of the lessons, opened at the first.
c.Spawner.cmd = ["/bin/sh", str(Path(__file__).with_name("begin.sh")), sys.executable, "my_lessons"]
c.Spawner.args = ["--KernelManager.transport=ipc"]  # over TCP every account could listen to a kernel
c.Spawner.notebook_dir = "~/my_lessons"
c.Spawner.default_url = "/lab/tree/00_start_here.ipynb"
c.Spawner.environment = {
    "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.defpath]),
    "PYTHONPATH": str(CHECKOUT),
    "JUPYTER_CONFIG_PATH": str(CHECKOUT / "amp_lessons" / "cli" / "lab" / "jupyter_config"),
    **dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1"),
}

# When a class presses "Start" at once, on a small machine; and when the hub is started again in mid-class.
c.Spawner.start_timeout = c.Spawner.http_timeout = 180
c.JupyterHub.concurrent_spawn_limit = 10
c.JupyterHub.active_server_limit = 0
c.JupyterHub.cleanup_servers = False

# The live room of the class (classroom/room), led by these logins:
# from classroom.room.config import add_to
# add_to(c, teachers=["ms-lovelace"])
