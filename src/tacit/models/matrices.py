"""Symmetric matrices: as vectors, and how far they can change and stay positive definite."""

from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import linalg

from tacit.models.natural import Places, Vector, within

Triangle = tuple[NDArray[np.intp], NDArray[np.intp], Vector]


def triangle(dimension: int) -> Triangle:
    """Rows and columns of the entries of a packed matrix, and the factors of the entries.

    Returns new arrays in every call, so that a compiled step makes its own.
    """
    rows, columns = np.tril_indices(dimension)
    return rows, columns, np.where(rows == columns, 1.0, np.sqrt(2.0))


_triangle = lru_cache(maxsize=16)(triangle)


def packed(matrix: ArrayLike) -> Vector:
    """The lower triangle of a symmetric matrix, with entries off the diagonal times sqrt(2).

    The 2-norm of the result is the Frobenius norm of the matrix.
    """
    square = np.asarray(matrix, np.float64)
    rows, columns, scale = _triangle(len(square))
    lower: Vector = square[rows, columns] * scale
    return lower


def unpacked(vector: Vector, dimension: int) -> Vector:
    """The symmetric matrix that `packed` packed."""
    rows, columns, scale = _triangle(dimension)
    matrix = np.zeros((dimension, dimension))
    matrix[rows, columns] = matrix[columns, rows] = vector / scale
    return matrix


def diagonal(dimension: int) -> Places:
    """Entries of a packed matrix that are on its diagonal."""
    return np.cumsum(np.arange(1, dimension + 1)) - 1


def inverse(matrix: Vector) -> Vector:
    """The inverse of a positive definite matrix."""
    solved = linalg.cho_solve(linalg.cho_factor(matrix), np.eye(len(matrix)))
    symmetric: Vector = (solved + solved.T) / 2
    return symmetric


def largest_bend(matrix: Vector, change: Vector) -> float:
    """The largest share of a change under which a positive definite matrix stays so."""
    factor = cholesky(matrix)
    if factor is None:
        return 0.0
    half = linalg.solve_triangular(factor, change, lower=True)
    relative = linalg.solve_triangular(factor, half.T, lower=True)
    bends = linalg.eigvalsh((relative + relative.T) / 2)
    return float(within(np.ones(len(matrix)), bends).min())


def raised(matrix: Vector, least: Vector) -> Vector:
    """The nearest matrix that is nowhere below another."""
    values, vectors = np.linalg.eigh(matrix - least)
    return np.asarray(least + (vectors * np.maximum(values, 0)) @ vectors.T, np.float64)


def cholesky(matrix: Vector) -> Vector | None:
    """The lower Cholesky factor, or None if the matrix is not positive definite."""
    try:
        return np.asarray(np.linalg.cholesky(matrix), np.float64)
    except np.linalg.LinAlgError:
        return None
