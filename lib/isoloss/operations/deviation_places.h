// Finds tiles, rows, columns and lanes that hold all deviations.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "isoloss/operations/deviations.h"

namespace isoloss::operations {

/// A statement is told only if chance makes it with at most this probability.
inline constexpr double kPatternChance = 1e-3;

/// Joins "a", "b" and "c" to "a, b and c". It only says how many there are
/// beyond the first `shown`.
std::string ListOf(const std::vector<std::string>& parts, size_t shown);

/// Returns "(64, 128)" for each place, times `tile`.
std::vector<std::string> PlacesText(const FewPlaces& places, size_t tile);

/// Returns clauses such as "in rows 8 to 15 of tiles of 64", which hold for all
/// of at least two deviations; none if they have no pattern.
std::vector<std::string> PlaceClauses(const Deviations& deviations);

/// Returns such clauses on the rows and columns of each tile, which hold for
/// several results. Each must have deviations.
std::vector<std::string> CommonPlaceClauses(
    std::span<const Deviations* const> results);

}  // namespace isoloss::operations
