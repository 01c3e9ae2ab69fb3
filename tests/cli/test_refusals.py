"""What a command refuses, and in which words, before anything runs or is written."""

from __future__ import annotations

COMMANDS = """
adit
doctor --nonsense
doctor nonsense
progress --rest
progress --reset '' --yes
grade . --memory much
grade . --out file
groups
groups --seed x
groups --seed 1 --handouts file
groups --seed 1 --handouts file/below
lab --port eighty
audit
audit missing.py
audit lesson.ipynb
audit .
audit -m a b.py
audit -m torch.distributed.run
audit s.py --epochs 1
audit s.py --steps abc
audit s.py --steps 0
audit s.py --every 0
audit s.py --shared nowhere
audit s.py --log nowhere/run.jsonl
audit s.py --json nowhere/file
audit s.py --json .
audit s.py --json ''
audit s.py --html nowhere/file
audit --try s.py
audit s.py --try head=fp64
audit s.py --try --minutes 0
compare missing.py
compare a.ipynb
compare s.py missing.py
compare s.py --precision fp8
compare s.py --steps 0
compare s.py --lr 0.1
compare r.json s.py --precision bf16
compare s.py --noise s.py
compare s.py --html .
compare r.json r.json
compare broken.json broken.json
advise m:f --seconds nan
advise m:f --html nowhere/file
progress --csv nowhere/file
progress --json .
explain clip_before_unscal
interview prove loss_scaling.bf61
interview mock --minutes 3
interview drill --number -2
interview --until someday
interview --until 2030-01-01 --minutes 5
interview --done x
interview code --minutes 20
interview code --task softmax
interview code --seed x
interview mock --html nowhere/file
interview sheet --pdf .
interview export --anki ''
interview export --csv nowhere/file
bench --models VGG
bench --precisions fp64
bench --modes fast
""".strip().splitlines()


def test_what_cannot_be_done_is_refused_with_what_would_be_right(tmp_path, monkeypatch, session, golden):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    (tmp_path / "s.py").write_text("raise SystemError('it ran')")
    (tmp_path / "r.json").write_text("{}")
    (tmp_path / "broken.json").write_text("{")
    (tmp_path / "file").touch()
    before = sorted(tmp_path.iterdir())
    golden("refusals.txt", session(*COMMANDS))
    assert sorted(tmp_path.iterdir()) == before
