"""Inline or realise: which values live on only in their readers' bodies, and which get memory."""

from litz_scheduler.realise.inline import Inline

__all__ = ["Inline"]
