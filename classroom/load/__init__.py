"""Learners who are none: how many of them a server bears, and how long they wait. ``make classroom-load``.

``learner`` does over HTTP and websockets what a browser does: it opens a lesson, runs it, moves a slider, has
an exercise checked. ``klass`` has many of them do so at once, ``lesson`` says what they run, ``server``
starts a Jupyter server where none is named, ``hub`` goes in through the login of one, ``machine`` measures,
``recording`` keeps what was found, and ``page`` makes ``README.md`` of it.
"""
