#include "isoloss/operations/deviation_places.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <optional>
#include <utility>

#include "isoloss/base/portable_math.h"

namespace isoloss::operations {
namespace {

using oracle::Place;
using portable::Log;
using Axis = Deviations::Axis;

// A pattern is a set of places that holds all n deviations. It is told only if
// it can hardly be chance. Let each place of the result be as likely as any
// other. A set with the share p of the places holds all of them with p^n at
// most, and some set of S such sets with S p^n.
//
// If the shares of S sets differ, the observed set's S p^n is compared with the
// limit. Each set then passes by chance with at most the limit over S, so that
// all together have the limit.
//
// Kinds of sets share the probability kPatternChance by their weights w, whose
// sum is at most 1. So a set is told if S p^n / w <= kPatternChance. There are
// five questions. Deviations lie in some square tiles, in some rows, in some
// columns, in some rows of each tile, and in some columns of each tile. Each
// question has a fifth, and the answers have these weights:
//   square tiles     w = 2^-d / 6 for d tiles of one of six sizes,
//                    S = binomial(tiles, d)
//   tiles of rows    half of that
//   a range of rows  w = 1/2, S = rows (rows + 1) / 2
//   rows of each tile of T, which has one of five sizes
//                    w = 1/10 for a range, S = T (T + 1) / 2
//                    w = 1/10 for an aligned power of two, S = 2 T - 2
//
// Rows of each tile are judged among the rows that the other answers leave. If
// several answers pass, the one of the least probability is told.
constexpr double kQuestions = 5.0;
constexpr double kTileSizes = 6.0;
constexpr double kLaneTiles = 5.0;
/// A set of more than half of the places tells nothing; 0.01 allows for
/// rounding.
constexpr double kMostShare = 0.51;

double LogOf(size_t x) { return Log(static_cast<double>(x)); }

bool CanHardlyBeChance(double log_chance) {
  return log_chance <= Log(kPatternChance / kQuestions);
}

/// Returns the logarithm of the binomial coefficient.
double LogChoices(double of, size_t chosen) {
  double sum = 0.0;
  for (size_t i = 0; i < chosen; ++i) {
    const auto taken = static_cast<double>(i);
    sum += Log((of - taken) / (taken + 1.0));
  }
  return sum;
}

size_t TilesIn(size_t extent, size_t tile) {
  return extent / tile + (extent % tile != 0 ? 1 : 0);
}

/// Rows from begin to end, each of which has `weight` elements.
struct Interval {
  size_t begin = 0;
  size_t end = 0;
  size_t weight = 1;
};

/// Some deviations may lie anywhere in these intervals.
struct Area {
  int64_t deviations = 0;
  std::vector<Interval> intervals = {};
};

Interval TileAt(const Axis& axis, size_t number, size_t tile) {
  return {number * tile,
          std::min(axis.extent - number * tile, tile) + number * tile};
}

/// All rows r with first <= r mod tile <= last.
struct Lanes {
  size_t tile = 1;
  size_t first = 0;
  size_t last = 0;
  double log_chance = 0.0;

  /// Returns how many rows below `end` belong to it.
  size_t Below(size_t end) const {
    const size_t width = last - first + 1;
    const size_t rest = end % tile;
    return end / tile * width +
           std::min(width, rest > first ? rest - first : 0);
  }
};

/// Returns the logarithm of the probability that all deviations lie in `lanes`.
double LogShare(const std::vector<Area>& areas, const Lanes& lanes) {
  double sum = 0.0;
  for (const Area& area : areas) {
    double all = 0.0;
    double inside = 0.0;
    for (const Interval& part : area.intervals) {
      const auto weight = static_cast<double>(part.weight);
      all += weight * static_cast<double>(part.end - part.begin);
      inside += weight * static_cast<double>(lanes.Below(part.end) -
                                             lanes.Below(part.begin));
    }
    sum += static_cast<double>(area.deviations) * Log(inside / all);
  }
  return sum;
}

/// Returns the two answers for tiles of one size: the smallest range of each
/// tile's rows that has all deviations, and the smallest aligned power of two.
std::array<Lanes, 2> LanesOf(
    const std::array<int64_t, Deviations::kLargestTile>& by_residue,
    size_t tile) {
  Lanes range = {.tile = tile, .first = tile, .last = 0};
  for (size_t r = 0; r < by_residue.size(); ++r) {
    if (by_residue[r] == 0) continue;
    range.first = std::min(range.first, r % tile);
    range.last = std::max(range.last, r % tile);
  }
  Lanes aligned = range;
  const size_t width = std::bit_floor(range.first ^ range.last) * 2;
  if (width > 0) {
    aligned.first = range.first / width * width;
    aligned.last = aligned.first + width - 1;
  }
  range.log_chance = LogOf(tile * (tile + 1) / 2);
  aligned.log_chance = LogOf(2 * tile - 2);
  return {aligned, range};
}

/// Lanes must come again, or else they are only a range of rows.
bool Recurs(const std::vector<Area>& areas, size_t tile) {
  return std::ranges::any_of(areas, [&](const Area& area) {
    return std::ranges::any_of(area.intervals, [&](const Interval& part) {
      return part.end - part.begin >= 2 * tile;
    });
  });
}

std::optional<Lanes> FindLanes(
    const std::array<int64_t, Deviations::kLargestTile>& by_residue,
    const std::vector<Area>& areas) {
  int64_t count = 0;
  for (const Area& area : areas) count += area.deviations;
  std::optional<Lanes> best;
  for (const size_t tile : Deviations::kTiles) {
    if (tile == 1 || !Recurs(areas, tile)) continue;
    for (Lanes& lanes : LanesOf(by_residue, tile)) {
      const double share = LogShare(areas, lanes);
      if (share > static_cast<double>(count) * Log(kMostShare)) continue;
      lanes.log_chance += share + Log(2.0 * kLaneTiles);
      if (CanHardlyBeChance(lanes.log_chance) &&
          (!best || lanes.log_chance < best->log_chance)) {
        best = lanes;
      }
    }
  }
  return best;
}

constexpr size_t kShownTiles = 4;

std::string TextOf(const Lanes& lanes, const char* noun, size_t extent) {
  if (lanes.first < lanes.last) {
    return fmt::format("{}s {} to {} of tiles of {}", noun, lanes.first,
                       lanes.last, lanes.tile);
  }
  std::string text = fmt::format("{}s {}", noun, lanes.first);
  constexpr size_t kShown = 3;
  for (size_t i = 1; i < kShown; ++i) {
    const size_t next = lanes.first + i * lanes.tile;
    if (next < extent) text += fmt::format(", {}", next);
  }
  return fmt::format("{}, ... (every {}{})", text, lanes.tile,
                     lanes.tile == 32 ? "nd" : "th");
}

/// Says in which rows deviations lie, or in which columns.
struct AxisPattern {
  double log_chance = 0.0;
  std::optional<Lanes> lanes = {};
  std::string where = {};
};

class AxisSearch {
 public:
  AxisSearch(const Axis& axis, int64_t count, const char* noun)
      : axis_(axis), count_(count), noun_(noun) {}

  AxisPattern Find() {
    Take(0.0, {{0, axis_.extent}}, "");
    for (size_t i = 0; i < Deviations::kTiles.size(); ++i) TryTiles(i);
    const std::vector<Interval> range = {{axis_.first, axis_.last + 1}};
    const double sets = LogOf(axis_.extent) +
                        Log(0.5 * static_cast<double>(axis_.extent) + 0.5);
    Try(sets + Log(2.0), range);
    return best_;
  }

 private:
  void TryTiles(size_t index) {
    const FewPlaces& tiles = axis_.tiles[index];
    if (!tiles.are_few()) return;
    const size_t tile = Deviations::kTiles[index];
    std::vector<Interval> intervals;
    for (const Place& place : tiles.all()) {
      intervals.push_back(TileAt(axis_, place.row, tile));
    }
    const size_t found = intervals.size();
    const auto of = static_cast<double>(TilesIn(axis_.extent, tile));
    Try(LogChoices(of, found) + static_cast<double>(found) * Log(2.0) +
            Log(kTileSizes) + Log(2.0),
        intervals);
  }

  /// `log_sets` is the logarithm of S / w.
  void Try(double log_sets, const std::vector<Interval>& intervals) {
    double inside = 0.0;
    for (const Interval& part : intervals) {
      inside += static_cast<double>(part.end - part.begin);
    }
    const double share = inside / static_cast<double>(axis_.extent);
    const double log_chance =
        log_sets + static_cast<double>(count_) * Log(share);
    if (share <= kMostShare && CanHardlyBeChance(log_chance)) {
      Take(log_chance, intervals, TextOf(intervals));
    }
  }

  void Take(double log_chance, const std::vector<Interval>& intervals,
            const std::string& text) {
    AxisPattern pattern = {log_chance};
    pattern.lanes = FindLanes(axis_.by_residue, {{count_, intervals}});
    if (pattern.lanes) pattern.log_chance += pattern.lanes->log_chance;
    if (!(pattern.log_chance < best_.log_chance)) return;
    pattern.where = text;
    best_ = pattern;
  }

  std::string TextOf(const std::vector<Interval>& intervals) const {
    std::vector<std::string> parts;
    for (const Interval& part : intervals) {
      parts.push_back(part.end - part.begin == 1
                          ? fmt::format("{}", part.begin)
                          : fmt::format("{} to {}", part.begin, part.end - 1));
    }
    const bool is_one =
        intervals.size() == 1 && intervals[0].end - intervals[0].begin == 1;
    return fmt::format("in {}{} {}", noun_, is_one ? "" : "s",
                       ListOf(parts, kShownTiles));
  }

  const Axis& axis_;
  int64_t count_;
  const char* noun_;
  AxisPattern best_;
};

/// Says where deviations lie.
struct PlacePattern {
  double log_chance = 0.0;
  std::optional<Lanes> row_lanes = {};
  std::optional<Lanes> column_lanes = {};
  std::vector<std::string> where = {};  ///< "in rows 64 to 127"
};

std::string SquaresText(const Deviations& deviations, size_t index) {
  const FewPlaces& squares = deviations.squares()[index];
  const size_t tile = Deviations::kTiles[index];
  const std::vector<std::string> corners = PlacesText(squares, tile);
  if (corners.size() == 1) {
    return fmt::format("in the tile of {0} x {0} at (row, column) {1}", tile,
                       corners[0]);
  }
  return fmt::format("in {0} tiles of {1} x {1}, at (row, column) {2}",
                     corners.size(), tile, ListOf(corners, kShownTiles));
}

/// Returns nothing if it may be chance that the square tiles are so few.
std::optional<PlacePattern> FindSquares(const Deviations& deviations,
                                        size_t index) {
  const FewPlaces& squares = deviations.squares()[index];
  if (!squares.are_few()) return std::nullopt;
  const size_t tile = Deviations::kTiles[index];
  const Axis& rows = deviations.rows();
  const Axis& columns = deviations.columns();
  Area row_area = {.deviations = deviations.count()};
  Area column_area = row_area;
  double inside = 0.0;
  for (const Place& place : squares.all()) {
    Interval row = TileAt(rows, place.row, tile);
    Interval column = TileAt(columns, place.column, tile);
    row.weight = column.end - column.begin;
    column.weight = row.end - row.begin;
    inside += static_cast<double>(row.weight * column.weight);
    row_area.intervals.push_back(row);
    column_area.intervals.push_back(column);
  }
  const double share = inside / static_cast<double>(rows.extent) /
                       static_cast<double>(columns.extent);
  const double of = static_cast<double>(TilesIn(rows.extent, tile)) *
                    static_cast<double>(TilesIn(columns.extent, tile));
  const size_t found = squares.all().size();
  PlacePattern pattern = {
      .log_chance = LogChoices(of, found) +
                    static_cast<double>(found) * Log(2.0) + Log(kTileSizes) +
                    static_cast<double>(deviations.count()) * Log(share)};
  if (share > kMostShare || !CanHardlyBeChance(pattern.log_chance)) {
    return std::nullopt;
  }
  pattern.row_lanes = FindLanes(rows.by_residue, {row_area});
  pattern.column_lanes = FindLanes(columns.by_residue, {column_area});
  for (const auto& lanes : {pattern.row_lanes, pattern.column_lanes}) {
    if (lanes) pattern.log_chance += lanes->log_chance;
  }
  pattern.where = {SquaresText(deviations, index)};
  return pattern;
}

PlacePattern FindPlaces(const Deviations& deviations) {
  const AxisPattern rows =
      AxisSearch(deviations.rows(), deviations.count(), "row").Find();
  const AxisPattern columns =
      AxisSearch(deviations.columns(), deviations.count(), "column").Find();
  PlacePattern best = {.log_chance = rows.log_chance + columns.log_chance,
                       .row_lanes = rows.lanes,
                       .column_lanes = columns.lanes};
  for (const std::string& where : {rows.where, columns.where}) {
    if (!where.empty()) best.where.push_back(where);
  }
  // Squares of one element are never few for their number.
  for (size_t i = 1; i < Deviations::kTiles.size(); ++i) {
    std::optional<PlacePattern> squares = FindSquares(deviations, i);
    if (squares && squares->log_chance < best.log_chance) {
      best = std::move(*squares);
    }
  }
  return best;
}

/// Returns a clause such as "in rows 8 to 15 of tiles of 64"; none without
/// lanes.
std::vector<std::string> ClauseOf(const std::optional<Lanes>& rows,
                                  const std::optional<Lanes>& columns,
                                  size_t row_extent, size_t column_extent) {
  if (!rows && !columns) return {};
  std::string text = "in ";
  if (rows) text += TextOf(*rows, "row", row_extent);
  if (rows && columns) text += " and ";
  if (columns) text += TextOf(*columns, "column", column_extent);
  return {text};
}

}  // namespace

std::string ListOf(const std::vector<std::string>& parts, size_t shown) {
  std::string text;
  for (size_t i = 0; i < std::min(parts.size(), shown); ++i) {
    text += i == 0 ? "" : i + 1 == parts.size() ? " and " : ", ";
    text += parts[i];
  }
  return parts.size() <= shown
             ? text
             : fmt::format("{} and {} more", text, parts.size() - shown);
}

std::vector<std::string> PlacesText(const FewPlaces& places, size_t tile) {
  std::vector<std::string> parts;
  for (const Place& place : places.all()) {
    parts.push_back(
        fmt::format("({}, {})", place.row * tile, place.column * tile));
  }
  return parts;
}

std::vector<std::string> PlaceClauses(const Deviations& deviations) {
  const PlacePattern pattern = FindPlaces(deviations);
  std::vector<std::string> clauses =
      ClauseOf(pattern.row_lanes, pattern.column_lanes,
               deviations.rows().extent, deviations.columns().extent);
  clauses.insert(clauses.end(), pattern.where.begin(), pattern.where.end());
  return clauses;
}

std::vector<std::string> CommonPlaceClauses(
    std::span<const Deviations* const> results) {
  Axis rows = {.extent = SIZE_MAX};
  Axis columns = rows;
  std::vector<Area> row_areas;
  std::vector<Area> column_areas;
  for (const Deviations* result : results) {
    rows.Merge(result->rows());
    columns.Merge(result->columns());
    row_areas.push_back({result->count(), {{0, result->rows().extent}}});
    column_areas.push_back({result->count(), {{0, result->columns().extent}}});
  }
  return ClauseOf(FindLanes(rows.by_residue, row_areas),
                  FindLanes(columns.by_residue, column_areas), rows.extent,
                  columns.extent);
}

}  // namespace isoloss::operations
