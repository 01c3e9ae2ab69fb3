"""The live room to try: ``python -m classroom.jupyterhub --demo 3 --add classroom/room/demo_config.py``.

For a hub of your own, copy it and name the logins of your teachers.
"""

from classroom.room.config import add_to

add_to(get_config(), teachers=["teacher"])  # type: ignore[name-defined]  # noqa: F821
