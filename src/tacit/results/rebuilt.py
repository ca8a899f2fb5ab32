"""Models by formula, made again from a file, for predictions."""

from dataclasses import replace
from functools import lru_cache
from typing import Any

from tacit.data.schema import Schema
from tacit.models.adapt import from_numpyro
from tacit.models.base import AnyModel
from tacit.models.glm import from_recipe
from tacit.models.numpyro import NumPyroModel
from tacit.models.program import Program
from tacit.models.recipe import Recipe


def recipe_of(model: AnyModel | None) -> Recipe | None:
    """What a model was made from, if it is a model by formula."""
    if isinstance(model, NumPyroModel) and isinstance(model.function, Program):
        recipe = model.function.recipe
        return None if recipe is None else replace(recipe, predictors=model.predictors)
    return None


def model_of(recipe: Recipe, schema: Schema) -> NumPyroModel:
    """The model that a recipe describes, in the form that predictions take.

    It has the usual priors, whichever it was fitted with.
    """
    return _model_of(recipe.to_json(), schema)


@lru_cache(maxsize=8)
def _model_of(recipe: str, schema: Schema) -> NumPyroModel:
    known = Recipe.from_json(recipe)
    made = from_recipe(known, schema)

    def made_up(count: int, seed: int) -> dict[str, Any]:
        return dict(schema.made_up(count, seed=seed))

    adapted = from_numpyro(made.described, made_up, schema.person)
    return replace(adapted, predictors=known.predictors)
