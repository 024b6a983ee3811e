// Adjusts many p-values to control the false discovery rate.
#pragma once

#include <span>
#include <vector>

namespace isoloss::stats {

/// Returns Benjamini and Hochberg's adjusted p-values, in the order of the
/// input. If those at or below q are declared, the expected share of false
/// discoveries is at or below q. The tests must be independent or positively
/// dependent (PRDS).
/// Exact    ties and order of the input do not matter.
/// Errors   ConfigError unless every p lies in [0, 1].
/// Source   Benjamini, Hochberg, J. R. Stat. Soc. B 57 (1995), 289-300.
std::vector<double> BenjaminiHochberg(std::span<const double> p_values);

}  // namespace isoloss::stats
