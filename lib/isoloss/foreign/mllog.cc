// Reads MLPerf's training logs: mlcommons/logging, mlperf_logging/mllog. Text
// before ":::MLLOG" on a line is dropped, as the official parser does.
//   :::MLLOG {"namespace": "", "key": "eval_accuracy", "value": 0.94, ...}
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "isoloss/base/error.h"
#include "isoloss/foreign/format.h"
#include "isoloss/foreign/json.h"
#include "isoloss/foreign/text.h"

namespace isoloss::foreign {
namespace {

constexpr std::string_view kToken = ":::MLLOG";
/// Rounds 0.5 and 0.6 have ":::MLPv0.5.0 resnet 1541635596.9 (file:line) key:
/// ..".
constexpr std::string_view kOldToken = ":::MLPv0";

/// Only these benchmarks have a loss as eval_accuracy; the rest, an accuracy.
constexpr std::string_view kLossBenchmarks[] = {"gpt3", "llama2_70b_lora",
                                                "llama31_8b", "llama31_405b"};

/// The axes are in the order of preference.
constexpr std::string_view kAxes[] = {"samples_count", "epoch_num", "step"};

struct Place {
  std::string_view axis;  ///< of kAxes
  double at = 0;
};

std::optional<Place> PlaceOf(std::string_view metadata) {
  std::optional<Place> best;
  size_t best_rank = std::size(kAxes);
  JsonMembers members(metadata);
  while (members.Next()) {
    const auto axis = std::ranges::find(kAxes, members.key());
    const auto rank = static_cast<size_t>(axis - std::begin(kAxes));
    if (rank >= best_rank) continue;
    const auto at = JsonNumber(members.value());
    if (!at || !(*at >= 0) || *at > static_cast<double>(kMostWhole)) continue;
    best = Place{*axis, *at};
    best_rank = rank;
  }
  return best;
}

/// Each value of a name has its place on the x axis.
struct Points {
  std::string_view axis;  ///< key of the metadata
  bool whole = true;      ///< all places are whole numbers
  std::vector<std::pair<double, double>> values;
};

class MlLogReader : public LineReader {
 public:
  bool Read(std::string_view line) override {
    const size_t at = line.find(kToken);
    if (at == std::string_view::npos) {
      const bool old = line.find(kOldToken) != std::string_view::npos;
      old_ += old ? 1 : 0;
      return old;
    }
    ++lines_;
    std::optional<std::string_view> key;
    std::string_view value;
    std::string_view metadata;
    JsonMembers entry(line.substr(at + kToken.size()));
    while (entry.Next()) {
      if (entry.key() == "key") key = JsonString(entry.value());
      if (entry.key() == "value") value = entry.value();
      if (entry.key() == "metadata") metadata = entry.value();
    }
    if (!entry.sound() || !key || value.empty()) {
      ++broken_;
    } else {
      Keep(*key, value, metadata);
    }
    return true;
  }

  bool has_loss() const override { return !points_.empty(); }

  void Finish() override {
    RequirePoints();
    const bool is_loss = std::ranges::count(kLossBenchmarks, benchmark_) != 0;
    for (auto& [name, points] : points_) MakeSeries(name, points, is_loss);
    if (benchmark_.empty()) {
      run().notes.emplace_back(
          "The log does not name its benchmark, so nobody can tell whether "
          "eval_accuracy is a loss or an accuracy.");
    } else {
      run().notes.push_back(
          fmt::format("The benchmark is {}, so eval_accuracy is {}.",
                      benchmark_, is_loss ? "a loss" : "an accuracy"));
    }
    if (!status_.empty() && status_ != "success") {
      run().notes.push_back(
          fmt::format("The run says that it ended with status {}.", status_));
    }
    if (broken_ > 0) {
      run().notes.push_back(fmt::format(
          "{} lines with {} hold no JSON object with a key and a value, or a "
          "value without a place. They were left out.",
          broken_, kToken));
    }
    run().notes.emplace_back(
        "A run stops when it reaches its target, so its last value is selected "
        "and tells nothing.");
  }

 private:
  void RequirePoints() const {
    if (!points_.empty()) return;
    if (lines_ == 0) {
      ThrowError(ErrorKind::kFormat,
                 "{} lines are of MLPerf's rounds 0.5 and 0.6 ({}), which had "
                 "another grammar. Give a log of round 0.7 or later.",
                 old_, kOldToken);
    }
    ThrowError(ErrorKind::kFormat,
               "{} lines with {} hold no eval_accuracy, train_loss or other "
               "tracked value. Give the log of a run that got as far as an "
               "evaluation.",
               lines_, kToken);
  }

  void MakeSeries(const std::string& name, const Points& points, bool is_loss) {
    Series& series = run().Of(name);
    const bool is_eval = name.starts_with("eval_accuracy");
    if (is_eval && is_loss) series.quantity = Quantity::kEvalLoss;
    int64_t place = 0;
    double last = -1;
    for (const auto& [at, value] : points.values) {
      // Several ranks may tell the same value.
      if (at != std::exchange(last, at)) ++place;
      AddShortest(series, points.whole ? static_cast<int64_t>(at) : place,
                  value);
    }
    // In logs of language models, epoch_num holds samples, too.
    const bool is_epoch = points.axis == "epoch_num" && !is_loss;
    if (is_eval || points_.size() == 1) {
      run().step_unit =
          points.whole ? (is_epoch ? "epoch" : "sample") : "value";
    }
    if (!points.whole) {
      run().notes.push_back(fmt::format(
          "{}: {} is a fraction of an epoch, which is no place that another "
          "run shares. The values are numbered instead.",
          name, points.axis));
    }
  }

  void Keep(std::string_view key, std::string_view value,
            std::string_view metadata) {
    if (key == "seed") {
      run().seed = ParseWhole(value);
    } else if (key == "submission_benchmark") {
      benchmark_ = JsonString(value).value_or("");
    } else if (key == "run_stop") {
      JsonMembers members(metadata);
      while (members.Next()) {
        if (members.key() != "status") continue;
        status_ = JsonString(members.value()).value_or("");
      }
    } else if (key == "tracked_stats") {
      JsonMembers members(value);
      while (members.Next()) {
        KeepValue(members.key(), members.value(), metadata);
      }
    } else if (key == "train_loss" || key == "eval_accuracy" ||
               key == "eval_loss" || key == "grad_norm") {
      KeepValue(key, value, metadata);
      // A detector has an object of values: {"BBOX": 0.25, "SEGM": 0.24}.
      JsonMembers members(value);
      while (members.Next()) {
        KeepValue(fmt::format("{}/{}", key, members.key()), members.value(),
                  metadata);
      }
    } else if (const auto setting = JsonNumber(value)) {
      run().settings.try_emplace(std::string(key), *setting);
    }
  }

  void KeepValue(std::string_view name, std::string_view value,
                 std::string_view metadata) {
    const auto number = JsonNumber(value);
    if (!number) return;
    const std::optional<Place> place = PlaceOf(metadata);
    if (!place) {
      ++broken_;
      return;
    }
    auto found = points_.find(name);
    if (found == points_.end()) {
      found = points_.try_emplace(std::string(name)).first;
    }
    Points& points = found->second;
    points.axis = place->axis;
    points.whole = points.whole && place->at == std::floor(place->at);
    points.values.emplace_back(place->at, *number);
  }

  std::string benchmark_;
  std::string status_;
  std::map<std::string, Points, std::less<>> points_;
  int64_t lines_ = 0;
  int64_t old_ = 0;
  int64_t broken_ = 0;
};

}  // namespace

extern const Format kFormat_mllog = {.name = "mllog",
                                     .lines = &MakeReader<MlLogReader>};

}  // namespace isoloss::foreign
