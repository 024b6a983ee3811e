// Fits values that are known to ascend.
#pragma once

#include <span>
#include <vector>

namespace isoloss::stats {

/// Returns the ascending values with the least sum of squared distances from
/// `values`: neighbours that descend become their mean.
/// Special  infinite values are allowed, NaN is not.
/// Source   pool adjacent violators: Ayer et al., Annals of Mathematical
///          Statistics 26 (1955), 641-647.
std::vector<double> IsotonicFit(std::span<const double> values);

}  // namespace isoloss::stats
