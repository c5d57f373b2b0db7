r"""The covariances of the simulation studies: the true ones and the wrong ones (Additional Misspecifications).

Every function takes and returns symmetric positive definite (D, D) matrices and refuses arguments that cannot give
one. The paper says that its PCA structure and PC anisotropy flip preserve the marginal variances; they do not (the
trace, or the variance of the mean, is all they preserve). `with_variances_of` gives each construction a form that does.
"""

import math

import torch
from torch import Tensor

_SAME = 1e-9  # eigenvalues closer than this, relative to the largest, are one eigenvalue


def line_locations(n_targets: int) -> Tensor:
    """Targets on a line, one apart: (D, 1)."""
    return torch.arange(n_targets, dtype=torch.float64)[:, None]


def grid_locations(n_rows: int, n_columns: int) -> Tensor:
    """Targets on a grid, one apart, row by row: (rows x columns, 2)."""
    rows, columns = torch.arange(n_rows, dtype=torch.float64), torch.arange(n_columns, dtype=torch.float64)
    return torch.cartesian_prod(rows, columns)


def exponential_covariance(locations: Tensor, range_: float = 1.0, variance: float = 1.0) -> Tensor:
    r"""$\Sigma_{ij} = \sigma^2 \exp(-\|s_i - s_j\| / \tau)$ for locations (D, 1) or (D, 2) (sections 5.1.1 and 5.1.2).

    >>> exponential_covariance(line_locations(3))[0]
    tensor([1.0000, 0.3679, 0.1353], dtype=torch.float64)
    """
    if range_ <= 0 or variance <= 0:
        raise ValueError(f"range {range_} and variance {variance} of an exponential covariance must both be positive")
    distance = (locations[:, None, :] - locations[None, :, :]).square().sum(-1).sqrt()
    return require_covariance(variance * torch.exp(-distance / range_), "the exponential covariance")


def stretched_covariance(locations: Tensor, factor: float = 5.0, range_: float = 1.0, variance: float = 1.0) -> Tensor:
    """Geometric anisotropy: the exponential covariance after the second coordinate is multiplied by `factor`.

    Keeps every marginal variance; neighbours along the second axis become nearly independent for a large factor.
    """
    if locations.shape[-1] != 2:
        raise ValueError(f"anisotropy needs locations in the plane, (D, 2), got {tuple(locations.shape)}")
    if factor <= 0:
        raise ValueError(f"an axis cannot be stretched by {factor}; use a positive factor (the paper has 5)")
    return exponential_covariance(locations * locations.new_tensor([1.0, factor]), range_, variance)


def scrambled_spectrum(covariance: Tensor, gamma: float = 1.0) -> Tensor:
    r"""PCA spectrum scramble: the eigenvectors stay, the eigenvalues move towards their reverse.

    $\tilde\lambda = (1 - \gamma) \lambda + \gamma\, \mathrm{reverse}(\lambda)$, rescaled to the same trace (which the
    mixture already has). gamma = 0 changes nothing, gamma = 1 gives the most important direction the least variance.
    Preserves the trace, not the marginal variances.
    """
    if not 0 <= gamma <= 1:
        raise ValueError(f"gamma = {gamma} is no mixture of a spectrum and its reverse; use a number from 0 to 1")
    values, vectors = eigenbasis(require_covariance(covariance))
    mixed = (1 - gamma) * values + gamma * values.flip(-1)
    return _assemble(vectors, mixed * (values.sum() / mixed.sum()), "the scrambled covariance")


def distorted_structure(covariance: Tensor, factor: float = 2.0, n_directions: int = 1) -> Tensor:
    r"""PCA structure: among the directions orthogonal to the mean, the k largest variances x c, the k smallest / c.

    In a basis whose first vector is $e = (1, \dots, 1) / \sqrt D$ the block orthogonal to e is distorted and the rest
    kept, so $e^\top \Sigma e$, the variance of the mean over targets, is preserved. The marginal variances are not. The
    covariance of the mean with the rest is kept too, which a strong shrinkage (large c) cannot bear: the matrix stops
    being positive definite and is refused.
    """
    dimension = len(require_covariance(covariance))
    if not 1 <= n_directions <= (dimension - 1) // 2:
        raise ValueError(
            f"k = {n_directions} largest and {n_directions} smallest of {dimension - 1} directions overlap or are none;"
            f" use k from 1 to {(dimension - 1) // 2} for D = {dimension}"
        )
    if factor <= 1:
        raise ValueError(f"c = {factor} must be greater than 1 (1 would change nothing)")
    basis = _basis_from_mean_direction(covariance)
    within = basis.mT @ covariance @ basis
    rest = basis[:, 1:]
    values, vectors = eigenbasis(_symmetric(within[1:, 1:]), rest.mT @ _positions(covariance) @ rest)
    scale = torch.ones_like(values)
    scale[:n_directions], scale[-n_directions:] = factor, 1 / factor
    within[1:, 1:] = (vectors * (scale * values)) @ vectors.mT
    return require_covariance(
        _symmetric(basis @ within @ basis.mT), f"the distorted covariance (c = {factor}, k = {n_directions})"
    )


def flipped_anisotropy(
    covariance: Tensor, ratio: float = 2.0, n_directions: int = 1, angle: float = math.pi / 2
) -> Tensor:
    r"""PC anisotropy flip: eigenvalues reversed, the first k x a, the last k / a, and the first two directions turned.

    $\Sigma_{flip} = (U R) \tilde\Lambda (U R)^\top$ with R a rotation by `angle` in the plane of the first two
    eigenvectors, rescaled to the same trace. The paper's cases leave out index D - k; here it is unchanged, like the
    indices before it. Preserves the trace, not the marginal variances.
    """
    values, vectors = eigenbasis(require_covariance(covariance))
    dimension = len(values)
    if not 1 <= n_directions <= dimension // 2:
        raise ValueError(
            f"k = {n_directions} first and {n_directions} last of {dimension} directions overlap or are empty; "
            f"use k from 1 to {dimension // 2} for D = {dimension}"
        )
    if ratio <= 1:
        raise ValueError(f"axis ratio a = {ratio} must be greater than 1 (1 would change nothing)")
    flipped = values.flip(-1).clone()
    flipped[:n_directions] *= ratio
    flipped[-n_directions:] /= ratio
    turned = vectors.clone()
    cosine, sine = math.cos(angle), math.sin(angle)
    turned[:, 0] = cosine * vectors[:, 0] + sine * vectors[:, 1]
    turned[:, 1] = cosine * vectors[:, 1] - sine * vectors[:, 0]
    return _assemble(turned, flipped * (values.sum() / flipped.sum()), "the flipped covariance")


def with_variances_of(covariance: Tensor, original: Tensor) -> Tensor:
    """The correlations of one covariance with the marginal variances of another, exactly.

    This is the form in which a wrong structure is invisible to any pre-rank that looks at one target at a time.

    >>> truth = exponential_covariance(line_locations(10))
    >>> scrambled_spectrum(truth).diagonal().round(decimals=2)[:3]
    tensor([0.8200, 1.0300, 1.0500], dtype=torch.float64)
    >>> with_variances_of(scrambled_spectrum(truth), truth).diagonal()[:3]
    tensor([1., 1., 1.], dtype=torch.float64)
    """
    scale = (original.diagonal() / require_covariance(covariance).diagonal()).sqrt()
    rescaled = _symmetric(scale[:, None] * covariance * scale[None, :])
    rescaled.diagonal().copy_(original.diagonal())
    return require_covariance(rescaled, "the rescaled covariance")


def eigenbasis(matrix: Tensor, tie_breaker: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Eigenvalues, largest first, and eigenvectors in columns, the same on every machine.

    A symmetric grid has equal eigenvalues, and any rotation of their eigenvectors is as good as another: constructions
    that treat the two differently would depend on the linear algebra library. Within equal eigenvalues the basis is
    therefore the one that diagonalises `tie_breaker` (the squared position of a target in its list, when None).
    """
    values, vectors = torch.linalg.eigh(matrix)
    values, vectors = values.flip(-1), vectors.flip(-1).clone()
    tie_breaker = _positions(matrix) if tie_breaker is None else tie_breaker
    ends = [*(torch.nonzero(values[:-1] - values[1:] > _SAME * values[0]).flatten() + 1).tolist(), len(values)]
    start = 0
    for end in ends:
        if end - start > 1:
            group = vectors[:, start:end]
            vectors[:, start:end] = group @ torch.linalg.eigh(_symmetric(group.mT @ tie_breaker @ group)).eigenvectors
        start = end
    return values, vectors


def require_covariance(matrix: Tensor, what: str = "the covariance") -> Tensor:
    """The matrix itself if it is symmetric positive definite, otherwise an error that says by how much it is not."""
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or not torch.equal(matrix, matrix.mT):
        raise ValueError(f"{what} of shape {tuple(matrix.shape)} is not a symmetric matrix")
    if int(torch.linalg.cholesky_ex(matrix).info) != 0:
        smallest = float(torch.linalg.eigvalsh(matrix)[0])
        raise ValueError(
            f"{what} is not positive definite (smallest eigenvalue {smallest:.3g}); change it less: a smaller "
            "factor, or fewer directions"
        )
    return matrix


def _assemble(vectors: Tensor, values: Tensor, what: str) -> Tensor:
    return require_covariance(_symmetric((vectors * values) @ vectors.mT), what)


def _symmetric(matrix: Tensor) -> Tensor:
    # a product is symmetric up to rounding only; the mean with its transpose is so exactly
    return (matrix + matrix.mT) / 2


def _positions(like: Tensor) -> Tensor:
    # squared, because the position itself is antisymmetric about the centre of a grid and would tell nothing apart
    return torch.diag(torch.arange(len(like), dtype=like.dtype, device=like.device).square())


def _basis_from_mean_direction(like: Tensor) -> Tensor:
    """An orthogonal matrix whose first column is (1, ..., 1) / sqrt(D): a Householder reflection, symmetric."""
    dimension = len(like)
    identity = torch.eye(dimension, dtype=like.dtype, device=like.device)
    normal = dimension**-0.5 - identity[0]
    return identity - 2 * torch.outer(normal, normal) / normal.dot(normal)
