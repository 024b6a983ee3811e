#include "isoloss/runlog/shared_columns.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <string_view>
#include <type_traits>
#include <unordered_map>

#include "isoloss/runlog/recording.h"

namespace isoloss::runlog {
namespace {

/// Labels have only this row.
constexpr SharedRow kNoStep;

std::unordered_map<std::string, size_t> Places(
    const std::vector<std::string>& names) {
  std::unordered_map<std::string, size_t> places;
  for (size_t i = 0; i < names.size(); ++i) places.try_emplace(names[i], i);
  return places;
}

void MatchLabels(SharedGroup& group, const View& a, const View& b) {
  for (const Column& column : group.of->columns) {
    if (column.role != Role::kLabels) continue;
    group.labels_a = &a.Values<std::string>(column);
    group.labels_b = &b.Values<std::string>(column);
    group.names = MatchNames(*group.labels_a, *group.labels_b);
  }
}

/// Returns the row of totals over all steps; `before` has these steps.
std::vector<SharedRow> TotalRow(const Group& before, const View& log_a,
                                const View& log_b) {
  const auto* a = log_a.Steps(before);
  const auto* b = log_b.Steps(before);
  if (a->empty() || b->empty() || a->back() != b->back()) return {};
  return {{0, 0, a->back()}};
}

/// Compares the axes from number `from` on.
std::optional<ExtentDifference> AxisDifference(const Column& column,
                                               const View& a, const View& b,
                                               size_t from) {
  for (const Axis& axis : std::span(column.axes).subspan(from)) {
    if (a.Size(axis) == b.Size(axis)) continue;
    return ExtentDifference{axis.name, a.Size(axis), b.Size(axis)};
  }
  return std::nullopt;
}

/// Returns the name of a place of an axis, such as "MoE layer 2".
std::string AxisPlace(std::string_view axis, size_t place) {
  if (axis == "layers") return fmt::format("MoE layer {}", place);
  if (axis == "sequences") return fmt::format("held-out sequence {}", place);
  return fmt::format("{} {}", axis.substr(0, axis.size() - 1), place);
}

double At(const std::vector<double>* values, size_t index) {
  return values == nullptr || index >= values->size() ? std::nan("")
                                                      : (*values)[index];
}

BasicStatistics BasicsOf(const Group& group, const View& log) {
  const auto find = [&](TensorStatisticIndex statistic) {
    const char* name = kTensorStatistics[statistic].name;
    const std::vector<double>* found = nullptr;
    for (const Column& column : group.columns) {
      if (column.field.name != name || column.type != ValueType::kDouble ||
          log.Count(column) == 0) {
        continue;
      }
      found = &log.Values<double>(column);
    }
    return found;
  };
  return {find(kStat_numel), find(kStat_l1_norm), find(kStat_l2_norm)};
}

/// Returns the magnitude of the elements of the tensor at `index` of one log; 0
/// if the log lacks the statistics for it.
double Magnitude(const BasicStatistics& basic, Scale scale, size_t index) {
  const double sum = At(basic.l1_norm, index);
  double magnitude = sum;
  if (scale == Scale::kRms) {
    const double numel = At(basic.numel, index);
    const double rms = At(basic.l2_norm, index) / std::sqrt(numel);
    magnitude = std::isfinite(rms) ? rms : sum / numel;
  }
  return std::isfinite(magnitude) ? magnitude : 0;
}

double LargestOfRow(const std::vector<double>& values, size_t row,
                    size_t width) {
  double largest = 0;
  for (const double value : std::span(values).subspan(row * width, width)) {
    largest = std::fmax(largest, std::fabs(value));
  }
  return largest;
}

/// Returns the quantity, besides the larger value, of which the tolerance is a
/// share.
double ScaleOf(const SharedValue& value) {
  const SharedColumn& column = *value.column;
  const Field& field = column.field();
  if (std::string_view(field.unit) == "%") return 100;
  // The remainder of a cancellation does not tell how exact it is: that depends
  // on the numbers that were summed.
  if (field.scale == Scale::kOwn) return 0;
  if (field.scale == Scale::kRow) {
    return std::max(LargestOfRow(column.a.Values<double>(*column.of),
                                 value.row.a, column.width_a),
                    LargestOfRow(column.b.Values<double>(*column.of),
                                 value.row.b, column.width_b));
  }
  return std::max(Magnitude(column.group->basic_a, field.scale, value.a),
                  Magnitude(column.group->basic_b, field.scale, value.b));
}

/// True if the field is NaN for a tensor that is not quantised.
bool OfQuantization(const Domain& domain) {
  return domain.Has(Relation::kShares) || domain.Has(Relation::kScales) ||
         domain.Has(Relation::kErrors);
}

template <typename T>
bool Agree(const T& a, const T& b, const SharedValue& value, const Rule& rule) {
  if (SameBits(a, b)) return true;
  if constexpr (std::is_floating_point_v<T>) {
    const Domain& domain = value.column->field().domain;
    const bool nan = std::isnan(a) || std::isnan(b);
    if (rule.where_both_quantize && nan && OfQuantization(domain)) return true;
    if (!rule.tolerance) return false;
    if (nan) return std::isnan(a) && std::isnan(b);
    if (std::isinf(a) || std::isinf(b) || domain.is_whole()) return a == b;
    const double difference = std::fabs(a - b);
    const double larger = std::max(std::fabs(a), std::fabs(b));
    return difference <= *rule.tolerance * larger ||
           difference <= *rule.tolerance * ScaleOf(value);
  }
  return false;
}

/// True if a digest of a row is not 0.
bool HasDigests(const View& log, const Column& column, size_t row,
                size_t width) {
  if (column.type != ValueType::kInt64) return true;
  const auto digests =
      std::span(log.Values<int64_t>(column)).subspan(row * width, width);
  return std::ranges::any_of(digests,
                             [](int64_t digest) { return digest != 0; });
}

bool HasStatistics(const BasicStatistics& basic, size_t index) {
  return basic.numel == nullptr || !std::isnan(At(basic.numel, index));
}

/// True if both texts say, in the same words, of which tensors and at which
/// steps statistics are recorded.
bool SameStatistics(const Provenance& a, const Provenance& b) {
  const auto of_a = KeysOf(a.experiment_text);
  const auto of_b = KeysOf(b.experiment_text);
  const std::string keys[] = {"log.statistics_first", "log.statistics_every",
                              "log.statistics_tensors"};
  return std::ranges::all_of(keys, [&](const std::string& key) {
    const auto found = of_a.find(key);
    const auto other = of_b.find(key);
    return found != of_a.end() && other != of_b.end() &&
           found->second == other->second;
  });
}

SharedValue::Value ValueAt(const View& log, const Column& column,
                           size_t index) {
  return log.WithValues(
      column, [index]<typename T>(const std::vector<T>& values) {
        using Whole =
            std::conditional_t<std::is_same_v<T, int32_t>, int64_t, T>;
        return SharedValue::Value(Whole{values[index]});
      });
}

bool SameMesh(const Provenance& a, const Provenance& b) {
  return a.ranks == b.ranks && a.ranks_per_node == b.ranks_per_node &&
         a.expert_data_parallel == b.expert_data_parallel &&
         a.exchange == b.exchange;
}

}  // namespace

MatchedNames MatchNames(const std::vector<std::string>& a,
                        const std::vector<std::string>& b) {
  const auto places_a = Places(a);
  const auto places_b = Places(b);
  MatchedNames matched;
  for (size_t i = 0; i < a.size(); ++i) {
    const auto place = places_b.find(a[i]);
    if (place == places_b.end()) {
      matched.only_a.push_back(a[i]);
    } else if (places_a.at(a[i]) == i) {
      matched.shared.push_back({i, place->second});
    }
  }
  for (const std::string& name : b) {
    if (!places_a.contains(name)) matched.only_b.push_back(name);
  }
  return matched;
}

std::vector<SharedRow> MatchRows(const std::vector<int64_t>& a,
                                 const std::vector<int64_t>& b) {
  std::vector<SharedRow> rows;
  if (a.empty() || b.empty()) return rows;
  const auto from = [](const std::vector<int64_t>& steps, int64_t step) {
    return static_cast<size_t>(
        std::lower_bound(steps.begin(), steps.end(), step) - steps.begin());
  };
  size_t i = from(a, b.front());
  size_t j = from(b, a.front());
  while (i < a.size() && j < b.size()) {
    if (a[i] == b[j]) rows.push_back({i, j, a[i]});
    const bool advance_a = a[i] <= b[j];
    const bool advance_b = b[j] <= a[i];
    i += advance_a ? 1 : 0;
    j += advance_b ? 1 : 0;
  }
  return rows;
}

bool SameBits(double a, double b) {
  return std::bit_cast<uint64_t>(a) == std::bit_cast<uint64_t>(b);
}

bool EqualBits(std::span<const double> a, std::span<const double> b) {
  return std::ranges::equal(a, b,
                            [](double x, double y) { return SameBits(x, y); });
}

std::string ExtentDifference::Text() const {
  return fmt::format("{} against {} {}", a, b, of);
}

std::pair<SharedValue::Value, SharedValue::Value> SharedValue::Values() const {
  return {ValueAt(column->a, *column->of, a),
          ValueAt(column->b, *column->of, b)};
}

std::string SharedValue::Place() const {
  const auto& axes = column->of->axes;
  const bool is_square = column->of->role == Role::kSquare;
  size_t rest = a % column->width_a;
  std::string front;
  if (column->labelled) {
    front = (*column->group->labels_a)[rest / column->inner];
    rest %= column->inner;
  }
  std::string text;
  for (size_t i = axes.size(); i-- > (column->labelled ? 1 : 0);) {
    const auto size = static_cast<size_t>(column->a.Size(axes[i]));
    const bool inner = i > 0 || is_square;
    const size_t at = inner && size > 0 ? rest % size : rest;
    rest = inner && size > 0 ? rest / size : 0;
    text = fmt::format("{}{}{}", AxisPlace(axes[i].name, at),
                       text.empty() ? "" : ", ", text);
  }
  if (is_square) front = AxisPlace("ranks", rest);
  return fmt::format("{}{}{}", front, front.empty() || text.empty() ? "" : ", ",
                     text);
}

std::optional<SharedValue> FirstDifferent(const SharedColumn& column,
                                          const SharedRow& row,
                                          const Rule& rule) {
  if (!rule.whole_rows && !IsRecorded(column, row)) return std::nullopt;
  const bool by_name = column.labelled && !rule.whole_rows;
  const auto& names = column.group->names.shared;
  const size_t inner = by_name ? column.inner : column.width_a;
  const size_t places = by_name ? names.size() : 1;
  return column.a.WithValues(
      *column.of,
      [&]<typename T>(
          const std::vector<T>& values) -> std::optional<SharedValue> {
        const std::vector<T>& others = column.b.Values<T>(*column.of);
        for (size_t place = 0; place < places; ++place) {
          const SharedName at = by_name ? names[place] : SharedName{};
          SharedValue value = {&column, row, place,
                               row.a * column.width_a + at.a * inner,
                               row.b * column.width_b + at.b * inner};
          if (by_name && !IsRecorded(column, row, place)) continue;
          for (size_t i = 0; i < inner; ++i, ++value.a, ++value.b) {
            if (!Agree(values[value.a], others[value.b], value, rule)) {
              return value;
            }
          }
        }
        return std::nullopt;
      });
}

bool IsRecorded(const SharedColumn& column, const SharedRow& row) {
  if (column.field().when != When::kDigests) return true;
  return HasDigests(column.a, *column.of, row.a, column.width_a) &&
         HasDigests(column.b, *column.of, row.b, column.width_b);
}

bool IsRecorded(const SharedColumn& column, const SharedRow& row,
                size_t place) {
  if (column.field().when != When::kStatistics || !column.labelled) return true;
  const SharedGroup& group = *column.group;
  const SharedName at = group.names.shared[place];
  const bool in_a =
      HasStatistics(group.basic_a, row.a * group.labels_a->size() + at.a);
  const bool in_b =
      HasStatistics(group.basic_b, row.b * group.labels_b->size() + at.b);
  return group.same_statistics ? in_a || in_b : in_a && in_b;
}

SharedColumns::SharedColumns(const RunLog& a, const RunLog& b)
    : a_(a), b_(b), same_mesh_(SameMesh(a.provenance, b.provenance)) {
  const bool same_statistics = SameStatistics(a.provenance, b.provenance);
  for (const Group& of : RowGroups()) {
    SharedGroup group = {.of = &of, .same_statistics = same_statistics};
    MatchLabels(group, a_, b_);
    group.basic_a = BasicsOf(of, a_);
    group.basic_b = BasicsOf(of, b_);
    if (of.HasSteps()) {
      group.rows = MatchRows(*a_.Steps(of), *b_.Steps(of));
    } else if (!of.HasEvents()) {
      group.rows = TotalRow(*groups_.back().of, a_, b_);
    }
    const SharedGroup& kept = groups_.emplace_back(std::move(group));
    for (const Column& column : of.columns) Add(kept, column);
  }
}

void SharedColumns::Add(const SharedGroup& group, const Column& column) {
  if (!column.field.reproducible || !column.IsRecorded()) return;
  const size_t of_a = a_.Count(column);
  const size_t of_b = b_.Count(column);
  if (of_a == 0 || of_b == 0) return;
  const bool is_labels = column.role == Role::kLabels;
  const bool in_steps = group.of->HasSteps() && !is_labels;
  const size_t rows_a = in_steps ? a_.Steps(*group.of)->size() : 1;
  const size_t rows_b = in_steps ? b_.Steps(*group.of)->size() : 1;
  // An integrity rule reports a column that is not as long as its rows need.
  if (rows_a == 0 || rows_b == 0 || of_a % rows_a != 0 || of_b % rows_b != 0) {
    return;
  }
  SharedColumn shared = {&group,     &column,       a_,           b_,
                         group.rows, of_a / rows_a, of_b / rows_b};
  if (is_labels) shared.rows = {&kNoStep, 1};
  shared.labelled = group.labels_a != nullptr && !group.labels_a->empty() &&
                    !group.labels_b->empty() && column.role == Role::kRows;
  shared.extents = AxisDifference(column, a_, b_, shared.labelled ? 1 : 0);
  size_t inner_b = shared.width_b;
  shared.inner = shared.width_a;
  if (shared.labelled) {
    const size_t names_a = group.labels_a->size();
    const size_t names_b = group.labels_b->size();
    if (shared.inner % names_a != 0 || inner_b % names_b != 0) return;
    shared.inner /= names_a;
    inner_b /= names_b;
  }
  if (!shared.extents && shared.inner != inner_b) {
    shared.extents = {"values of each place",
                      static_cast<int64_t>(shared.inner),
                      static_cast<int64_t>(inner_b)};
  }
  columns_.push_back(shared);
}

Band SharedColumns::OfSharedScope(bool other_extents) const {
  Band band;
  for (const SharedColumn& column : columns_) {
    const Scope scope = column.field().scope;
    const bool shared = same_mesh_ || scope != Scope::kMesh;
    if (shared && column.HoldsValues() &&
        column.extents.has_value() == other_extents) {
      band.push_back(&column);
    }
  }
  return band;
}

Band SharedColumns::Comparable() const { return OfSharedScope(false); }

Band SharedColumns::OtherExtents() const { return OfSharedScope(true); }

std::vector<int64_t> SharedGroup::Steps() const {
  std::vector<int64_t> steps;
  for (const SharedRow& row : rows) steps.push_back(row.step);
  return steps;
}

const SharedGroup& SharedColumns::group(const char* name) const {
  return *std::find_if(
      groups_.begin(), groups_.end(),
      [name](const SharedGroup& group) { return group.of->name == name; });
}

std::vector<int64_t> SharedColumns::Steps() const {
  std::vector<int64_t> steps;
  for (const SharedGroup& group : groups_) {
    if (group.of->name == "eval") continue;
    for (const SharedRow& row : group.rows) steps.push_back(row.step);
  }
  std::sort(steps.begin(), steps.end());
  steps.erase(std::unique(steps.begin(), steps.end()), steps.end());
  return steps;
}

std::optional<StepDifference> FirstInSteps(const std::vector<int64_t>& steps,
                                           const std::vector<Band>& bands,
                                           const Rule& rule) {
  std::optional<int64_t> last;
  for (const int64_t step : steps) {
    for (const Band& band : bands) {
      std::optional<SharedValue> first;
      for (const SharedColumn* column : band) {
        const auto row =
            std::lower_bound(column->rows.begin(), column->rows.end(), step,
                             [](const SharedRow& at, int64_t wanted) {
                               return at.step < wanted;
                             });
        if (row == column->rows.end() || row->step != step) continue;
        const auto found = FirstDifferent(*column, *row, rule);
        if (found && (!first || found->place < first->place)) first = found;
      }
      if (first) return StepDifference{*first, last};
    }
    last = step;
  }
  return std::nullopt;
}

}  // namespace isoloss::runlog
