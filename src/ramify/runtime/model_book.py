"""Which model an agent talks to."""

from collections.abc import Mapping
from typing import Any, Final

from ramify.core.errors import InvalidValueError
from ramify.core.model import Model, Provider

_DEFAULT: Final = "default"

Wish = Model | Provider | str | None


class ModelBook:
    """The models of one runtime, by what agents call them."""

    def __init__(self, models: Mapping[Any, Wish] | Wish = None) -> None:
        entries: Mapping[Any, Wish] = models if isinstance(models, Mapping) else {_DEFAULT: models}
        for key, model in entries.items():
            if not isinstance(key, str) or not isinstance(model, Model | str | None):
                raise InvalidValueError(
                    f"models map a Provider or a name to a model or its name, not {key!r} to"
                    f" {model!r}"
                )
        self._entries = {str(key): model for key, model in entries.items()}
        self._found: dict[str, Model] = {}

    def find(self, wish: Wish) -> Model:
        """Return the model that *wish* stands for here; None stands for the default.

        Raises:
            InvalidValueError: it stands for none.
        """
        if wish is None:
            wish = self._entries.get(_DEFAULT) or Provider.Local
        if isinstance(wish, Model):
            return wish
        if not isinstance(wish, str):
            raise InvalidValueError(f"a model is a Model, a Provider or a name, not {wish!r}")
        key = str(wish)
        entry = self._entries.get(key, wish)
        if isinstance(entry, Model):
            return entry
        if key not in self._found:
            from ramify.models.naming import find_model  # noqa: PLC0415 - only agents need it

            self._found[key] = find_model(entry or key)
        return self._found[key]
