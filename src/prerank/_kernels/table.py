"""The fused kernels of the library, a row each. A study registers its own beside its plain code."""

from prerank._kernels.choosing import Kernel, register

NORMALS = register(
    Kernel(
        "normal numbers",
        "standard normal numbers of a step, each a hash of a key and its position",
        fused="prerank._kernels.randomness_kernel.normals",
        plain="prerank.randomness.normals_of_step",
    )
)
MINIBATCH = register(
    Kernel(
        "minibatch",
        "features, targets and weights of the rows that every model is shown",
        fused="prerank._kernels.batch_kernel.take",
        plain="prerank.training.batches.Batches.take",
    )
)
PERCEPTRON = register(
    Kernel(
        "perceptron",
        "the layers of the networks of a fleet",
        fused="prerank._kernels.network_kernel.perceptron",
        plain="prerank.models.network.perceptron",
        most={"axes": 3},
    )
)
UNPACKING = register(
    Kernel(
        "mixture from output",
        "logits, means and Cholesky factors from the last layer",
        fused="prerank._kernels.network_kernel.unpacked",
        plain="prerank.models.network.mixture_from",
    )
)
LOG_LIKELIHOOD = register(
    Kernel(
        "log likelihood",
        "log density of a mixture at one point per case",
        fused="prerank._kernels.density_kernel.log_prob",
        plain="prerank.forecasts.GaussianMixture.log_prob",
        most={"targets": 32},
    )
)
LOG_DENSITY = register(
    Kernel(
        "log density",
        "log density of a mixture at many points per case",
        fused="prerank._kernels.density_kernel.log_density",
        plain="prerank.forecasts.GaussianMixture.log_density",
        most={"targets": 32},
        fewest={"points": 16},  # fewer would leave most of a block idle
    )
)
PIT_ALONG = register(
    Kernel(
        "PIT along directions",
        "the CDF of a mixture along directions that are held fixed",
        fused="prerank._kernels.along_kernel.pit_along",
        plain="prerank.forecasts.GaussianMixture.pit_along",
        most={"targets": 32},
    )
)
COVARIANCE = register(
    Kernel(
        "covariance",
        "the covariance of a mixture, without a gradient",
        fused="prerank._kernels.covariance_kernel.covariance",
        plain="prerank.forecasts.GaussianMixture.covariance_matrix",
        most={"targets": 32},
    )
)
ALLOCATION = register(
    Kernel(
        "allocation of draws",
        "how many draws a component gets, which they are and what they weigh",
        fused="prerank._kernels.allocation_kernel.allocation",
        plain="prerank.forecasts.GaussianMixture.draws_from",
        most={"components": 16, "draws": 1024},  # a program holds all of a case together
    )
)
DRAWS = register(
    Kernel(
        "draws",
        "means plus factors times noise, of chosen components",
        fused="prerank._kernels.draw_kernel.draw",
        plain="prerank.forecasts._component_draws.Draw",
        most={"targets": 32},
    )
)
SPREAD = register(
    Kernel(
        "spread of a point",
        "the variance over targets, or the variogram over it",
        fused="prerank._kernels.points_kernel.spread",
        plain="prerank.preranks.Dependency",
    )
)
PROJECTIONS = register(
    Kernel(
        "projections of points",
        "points along directions that are held fixed",
        fused="prerank._kernels.points_kernel.project",
        plain="prerank.preranks.LinearProjection",
    )
)
EIGENVECTORS = register(
    Kernel(
        "eigenvectors",
        "eigenvectors of small symmetric matrices, by Jacobi's method; the library's cannot be captured in a graph",
        fused="prerank._kernels.jacobi_kernel.principal_directions",
        plain="prerank.preranks.principal_directions",
        most={"targets": 16},  # beyond, the library is faster
    )
)
BANDWIDTHS = register(
    Kernel(
        "bandwidths",
        "Scott's bandwidths of weighted points, without a gradient",
        fused="prerank._kernels.bandwidth_kernel.bandwidths",
        plain="prerank.preranks.point_density.bandwidths",
        most={"targets": 32},
    )
)
JOINT_CDF = register(
    Kernel(
        "joint CDF",
        "the smooth joint CDF of the copula pre-rank",
        fused="prerank._kernels.jointcdf_kernel.log_joint_cdf",
        plain="prerank.preranks.joint_cdf.smooth_log_joint_cdf",
    )
)
SMOOTH_RANK = register(
    Kernel(
        "smooth rank",
        "smooth ranks of observations among weighted members",
        fused="prerank._kernels.smoothrank_kernel.smooth_rank",
        plain="prerank.calibration.smooth_pit",
        most={"members": 256},
    )
)
SMOOTH_PCE = register(
    Kernel(
        "smooth PCE",
        "the distance of a smooth empirical CDF of PITs from the diagonal, at levels that are held fixed",
        fused="prerank._kernels.smoothpce_kernel.smooth_pce",
        plain="prerank.calibration.pce_kde",
    )
)
FINITE = register(
    Kernel(
        "all finite",
        "which models of a fleet have finite gradients",
        fused="prerank._kernels.adam_kernel.all_finite",
        plain="prerank.training.fleet.all_finite",
    )
)
ADAM = register(
    Kernel(
        "Adam",
        "one step of Adam for all tensors of a fleet",
        fused="prerank._kernels.adam_kernel.adam",
        plain="prerank.training.fleet.adam",
    )
)
