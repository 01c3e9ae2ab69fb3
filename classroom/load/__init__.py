"""How many learners a server bears, and how long they wait: ``make classroom-load``, with simulated learners.

``learner`` does over HTTP and websockets what a browser does: it opens a lesson, runs it, moves a slider, has
an exercise checked. ``klass`` has many of them do so at once and measures, ``places`` lets them in at a
server or a hub, ``recording`` keeps what was found and makes the table of ``README.md`` of it.
"""
