"""What an audit found, without the numbers behind it."""

from __future__ import annotations

from typing import Any

from markupsafe import Markup

from amp_lessons.arguments import require
from amp_lessons.audit import Report, Sighting
from amp_lessons.audit.report import finding
from amp_lessons.audit.report.rendering import Section, headline, section_html
from amp_lessons.text import prose


class AuditFindings:
    """The verdict and the findings of an audit, in the words of its report.

    A report shows itself, whole. This is for where its numbers, which differ from run to run, are not needed.
    """

    def __init__(self, report: Report) -> None:
        """Take them from a report. Raises TypeError for anything else."""
        require(report, Report, "report", "an audit's report such as seen.report")
        self.headline: str = headline(report.to_dict())
        self.findings: tuple[Sighting, ...] = report.findings

    def __repr__(self) -> str:
        return "\n".join(
            [self.headline, *(line for each in self.findings for line in finding.text_lines(each))]
        )

    def as_markdown(self) -> str:
        """Render for GitHub, and for notebooks without HTML."""
        verdict = f"**{prose.as_markdown(self.headline)}**"
        return "\n\n".join([verdict, "\n".join(map(finding.as_markdown, self.findings))]).strip()

    def as_html(self) -> Markup:
        """Render as HTML."""
        found = (
            section_html(Section("Findings", findings=self.findings), "h4") if self.findings else Markup("")
        )
        section = Markup(
            '<section class="amp-audit" aria-label="{0}"><p><strong>{0}</strong></p>{1}</section>'
        )
        return section.format(self.headline, found)

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        return {"text/plain": repr(self), "text/markdown": self.as_markdown(), "text/html": self.as_html()}
