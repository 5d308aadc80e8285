"""The models of a runtime, and the resolution of model references."""

from collections.abc import Mapping
from typing import Any, Final, cast

from treefold.core.errors import InvalidValueError, NoModelError
from treefold.core.model import Model

_DEFAULT: Final = "default"


class ModelNames:
    """The models of one runtime, by the names that agents use.

    A model_ref refers to a model: a Model, a Provider, the name of a model, or "default" or None
    for the default, which is the runtime's, or else that of the environment.
    """

    def __init__(self, models: Any = None) -> None:
        given = cast("Any", models) if isinstance(models, Mapping) else {_DEFAULT: models}
        entries = dict[Any, Any](given)
        for key, model in entries.items():
            if not isinstance(key, str) or not (model is None or _is_model_ref(model)):
                raise InvalidValueError(
                    f"models map a Provider or a name to a model or its name, not {key!r} to"
                    f" {model!r}"
                )
        self._entries = {str(key): model for key, model in entries.items()}
        self._found: dict[str, Any] = {}

    def find(self, model_ref: Any) -> Any:
        """Return the model that *model_ref* refers to.

        Raises:
            InvalidValueError: it refers to no model.
            NoModelError: it is the default, and none was chosen.
        """
        if _is_default(model_ref):
            model_ref = self._default()
        if not _is_model_ref(model_ref):
            raise InvalidValueError(f"a model is a Model, a Provider or a name, not {model_ref!r}")
        if not isinstance(model_ref, str):
            return model_ref
        entry = self._entries.get(str(model_ref)) or self._called(model_ref) or model_ref
        if not isinstance(entry, str):
            return entry
        if entry not in self._found:
            from treefold.models.naming import find_model  # noqa: PLC0415 - only agents need it

            self._found[entry] = find_model(entry)
        return self._found[entry]

    def _called(self, name: str) -> Any:
        """Return the model whose own name is *name*: a journal records only that."""
        return next((m for m in self._entries.values() if getattr(m, "name", None) == name), None)

    def is_unchosen(self, model_ref: Any) -> bool:
        """Whether *model_ref* refers to the default, and the program has chosen none."""
        return _is_default(model_ref) and self._entries.get(_DEFAULT) is None

    def _default(self) -> Any:
        if (chosen := self._entries.get(_DEFAULT)) is not None:
            return chosen
        from treefold.models.choice import environment_model  # noqa: PLC0415 - only agents need it

        if (model := environment_model()) is None:
            raise NoModelError("no model is chosen: give the runtime one, or set TREEFOLD_MODEL")
        return self._found.setdefault(model.name, model)


def _is_default(model_ref: Any) -> bool:
    return model_ref is None or model_ref == _DEFAULT


def _is_model_ref(thing: object) -> bool:
    return isinstance(thing, str | Model)
