"""The fused kernels of the library, a row each. A study registers its own beside its plain code."""

from prerank.kernels.choosing import Kernel, register

NORMALS = register(
    Kernel(
        "normal numbers",
        "standard normal numbers of a step, each a hash of a key and its position",
        fused="prerank.kernels.randomness_kernel.normals",
        plain="prerank.randomness.normals_of_step",
    )
)
MINIBATCH = register(
    Kernel(
        "minibatch",
        "features, targets and weights of the rows that every model is shown",
        fused="prerank.kernels.batch_kernel.take",
        plain="prerank.training.batches.Batches.take",
    )
)
PERCEPTRON = register(
    Kernel(
        "perceptron",
        "the layers of the networks of a fleet",
        fused="prerank.kernels.network_kernel.perceptron",
        plain="prerank.models.network.perceptron",
        most={"axes": 3},
    )
)
UNPACKING = register(
    Kernel(
        "mixture from output",
        "logits, means and Cholesky factors from the last layer",
        fused="prerank.kernels.network_kernel.unpacked",
        plain="prerank.models.network.mixture_from",
    )
)
LOG_LIKELIHOOD = register(
    Kernel(
        "log likelihood",
        "log density of a mixture at one point per case",
        fused="prerank.kernels.density_kernel.log_prob",
        plain="prerank.forecast.GaussianMixture.log_prob",
        most={"targets": 32},
    )
)
LOG_DENSITY = register(
    Kernel(
        "log density",
        "log density of a mixture at many points per case",
        fused="prerank.kernels.density_kernel.log_density",
        plain="prerank.forecast.GaussianMixture.log_density",
        most={"targets": 32},
        fewest={"points": 16},  # fewer would leave most of a block idle
    )
)
PIT_ALONG = register(
    Kernel(
        "PIT along directions",
        "the CDF of a mixture along directions that are held fixed",
        fused="prerank.kernels.along_kernel.pit_along",
        plain="prerank.forecast.GaussianMixture.pit_along",
        most={"targets": 32},
    )
)
COVARIANCE = register(
    Kernel(
        "covariance",
        "the covariance of a mixture, without a gradient",
        fused="prerank.kernels.covariance_kernel.covariance",
        plain="prerank.forecast.GaussianMixture.covariance_matrix",
        most={"targets": 32},
    )
)
ALLOCATION = register(
    Kernel(
        "allocation of draws",
        "how many draws a component gets, which they are and what they weigh",
        fused="prerank.kernels.allocation_kernel.allocation",
        plain="prerank.forecast.GaussianMixture.draws_from",
        most={"components": 16, "draws": 1024},  # a program holds all of a case together
    )
)
DRAWS = register(
    Kernel(
        "draws",
        "means plus factors times noise, of chosen components",
        fused="prerank.kernels.draw_kernel.draw",
        plain="prerank.forecast.drawing.Draw",
        most={"targets": 32},
    )
)
SPREAD = register(
    Kernel(
        "spread of a point",
        "the variance over targets, or the variogram over it",
        fused="prerank.kernels.points_kernel.spread",
        plain="prerank.calibration.Dependency",
    )
)
PROJECTIONS = register(
    Kernel(
        "projections of points",
        "points along directions that are held fixed",
        fused="prerank.kernels.points_kernel.project",
        plain="prerank.calibration.LinearProjection",
    )
)
EIGENVECTORS = register(
    Kernel(
        "eigenvectors",
        "eigenvectors of small symmetric matrices, by Jacobi's method; the library's cannot be captured in a graph",
        fused="prerank.kernels.jacobi_kernel.principal_directions",
        plain="prerank.calibration.principal_directions",
        most={"targets": 16},  # beyond, the library is faster
    )
)
BANDWIDTHS = register(
    Kernel(
        "bandwidths",
        "Scott's bandwidths of weighted points, without a gradient",
        fused="prerank.kernels.bandwidth_kernel.bandwidths",
        plain="prerank.calibration.bandwidths",
        most={"targets": 32},
    )
)
JOINT_CDF = register(
    Kernel(
        "joint CDF",
        "the smooth joint CDF of the copula pre-rank",
        fused="prerank.kernels.jointcdf_kernel.log_joint_cdf",
        plain="prerank.calibration.jointcdf.smooth_log_joint_cdf",
    )
)
SMOOTH_RANK = register(
    Kernel(
        "smooth rank",
        "smooth ranks of observations among weighted members",
        fused="prerank.kernels.smoothrank_kernel.smooth_rank",
        plain="prerank.calibration.smooth_pit",
        most={"members": 256},
    )
)
SMOOTH_PCE = register(
    Kernel(
        "smooth PCE",
        "the distance of a smooth empirical CDF of PITs from the diagonal, at levels that are held fixed",
        fused="prerank.kernels.smoothpce_kernel.smooth_pce",
        plain="prerank.calibration.pce_kde",
    )
)
FINITE = register(
    Kernel(
        "all finite",
        "which models of a fleet have finite gradients",
        fused="prerank.kernels.adam_kernel.all_finite",
        plain="prerank.training.fleet.all_finite",
    )
)
ADAM = register(
    Kernel(
        "Adam",
        "one step of Adam for all tensors of a fleet",
        fused="prerank.kernels.adam_kernel.adam",
        plain="prerank.training.fleet.adam",
    )
)
