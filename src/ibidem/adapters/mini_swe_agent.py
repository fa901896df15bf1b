"""Adapter for mini-swe-agent: its LiteLLM models, with rewritten requests. The agent's own messages do not change.

>>> agent = DefaultAgent(IbidemLitellmModel(model_name="anthropic/claude-sonnet-4-5"), LocalEnvironment())

On its command line: `mini --model-class ibidem.adapters.mini_swe_agent.IbidemLitellmModel`.
"""

from __future__ import annotations

from typing import Any, ClassVar

from ..billing.prices import Prices
from ._cache_option import check_cache_mode
from ._request_rewriter import RequestRewriter, check_tested_version, log_errors, missing_framework_error

try:
    from minisweagent.models.litellm_model import LitellmModel, LitellmModelConfig
    from minisweagent.models.litellm_response_model import LitellmResponseModel, LitellmResponseModelConfig
except ModuleNotFoundError as error:
    raise missing_framework_error(error, "mini_swe_agent", "mini-swe-agent mcp") from None

from .litellm import call_history, usage_from_call

check_tested_version("mini_swe_agent", "mini-swe-agent", "2.5")  # `_query` is private


class IbidemLitellmModelConfig(LitellmModelConfig):
    ibidem_profile: str = "lossless"
    ibidem_cache: str = "off"
    """`auto` sets `set_cache_control` to "default_end" if it is unset and the provider needs cache breakpoints."""


class IbidemLitellmResponseModelConfig(LitellmResponseModelConfig):
    ibidem_profile: str = "lossless"
    ibidem_cache: str = "off"
    """Same as in the other model. No provider with the Responses API needs cache breakpoints."""


class RewritingMixin:
    """Mixin for a model class. It rewrites every attempt of a request."""

    wire: ClassVar[str]
    config: Any

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        config = self.config
        mode = check_cache_mode(
            config.ibidem_cache, "this model", "it supports only a TTL of five minutes", name="ibidem_cache"
        )
        if mode == "auto" and "set_cache_control" not in config.model_fields_set and self._needs_breakpoints():
            config.set_cache_control = "default_end"
        self._rewriter = RequestRewriter(config.ibidem_profile)

    def _needs_breakpoints(self) -> bool:
        return Prices().of(self.config.model_name, self.wire).caching.marks

    def _query(self, messages: list[Any], **kwargs: Any) -> Any:
        model = self.config.model_name
        history = call_history(messages, self.wire, {**self.config.model_kwargs, "model": model})
        pending = self._rewriter.rewrite(self.wire, history.compactable, model=model)
        response = super()._query(history.merge_changes(pending), **kwargs)  # type: ignore[misc]
        with log_errors():
            pending.report_usage(**usage_from_call(response.usage))
        return response


class IbidemLitellmModel(RewritingMixin, LitellmModel):
    """`LitellmModel` with the additional settings `ibidem_profile` and `ibidem_cache`."""

    wire: ClassVar[str] = "openai-chat"

    def __init__(self, *, config_class: Any = IbidemLitellmModelConfig, **kwargs: Any) -> None:
        super().__init__(config_class=config_class, **kwargs)


class IbidemLitellmResponseModel(RewritingMixin, LitellmResponseModel):
    """`LitellmResponseModel` with the additional settings `ibidem_profile` and `ibidem_cache`."""

    wire: ClassVar[str] = "openai-responses"

    def __init__(self, *, config_class: Any = IbidemLitellmResponseModelConfig, **kwargs: Any) -> None:
        super().__init__(config_class=config_class, **kwargs)
