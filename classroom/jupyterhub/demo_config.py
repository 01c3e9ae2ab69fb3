"""The same hub with made-up learners, for trying: ``python -m classroom.jupyterhub --demo 3``."""

import json
import os
from pathlib import Path

c = get_config()  # type: ignore[name-defined]  # noqa: F821
load_subconfig(str(Path(__file__).with_name("jupyterhub_config.py")))  # type: ignore[name-defined]  # noqa: F821

from classroom.jupyterhub import accounts  # noqa: E402
from classroom.jupyterhub.authenticators import DemoAuthenticator  # noqa: E402

state = Path(os.environ["AMP_CLASSROOM_STATE"])
people = json.loads((state / "hub" / "people.json").read_text("utf-8"))

c.JupyterHub.authenticator_class = DemoAuthenticator
c.DemoAuthenticator.passwords = people["passwords"]
c.Authenticator.allowed_users = set(people["passwords"])
c.Authenticator.admin_users = {"teacher"}
c.LearnerSpawner.account_of = accounts.made_up(
    list(people["passwords"]), state / "homes", people["first_uid"]
)
if people["memory_mib"]:
    c.Spawner.mem_limit = people["memory_mib"] * 2**20
