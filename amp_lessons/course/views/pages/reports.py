"""The pages of the instruments, under the names that lessons and other people's scripts have for them."""

from amp_lessons.advice.page import advice_page
from amp_lessons.audit.page import audit_page

__all__ = ["advice_page", "audit_page"]
