#include "isoloss/report/page/tensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

namespace isoloss::report {
namespace {

using document::Json;

using runlog::MoeColumns;
using runlog::TensorColumns;

/// The page draws these statistics, without `_columnwise`; the most important
/// come first. Statistics that a log does not have are passed over.
constexpr std::string_view kShown[] = {
    "sqnr_db",     "saturated%",
    "underflows%", "dynamic_range",
    "kurtosis",    "max_blockwise_dynamic_range",
    "cur_amax",    "std",
    "signed_gain", "block_argmax_spread",
};

/// Returns the statistic's place in kTensorStatistics; kTensorStatisticCount if
/// there is none.
size_t StatisticNamed(std::string_view name) {
  const auto found = std::ranges::find(runlog::kTensorStatistics, name,
                                       &runlog::TensorStatistic::name);
  return static_cast<size_t>(found - std::begin(runlog::kTensorStatistics));
}

/// Returns the places of kShown, each followed by the place of its
/// `_columnwise`.
std::vector<size_t> ShownStatistics() {
  std::vector<size_t> places;
  for (const std::string_view name : kShown) {
    for (const std::string_view suffix : {"", "_columnwise"}) {
      const size_t place = StatisticNamed(fmt::format("{}{}", name, suffix));
      if (place < runlog::kTensorStatisticCount) places.push_back(place);
    }
  }
  return places;
}

/// Returns the rows of a [S_t, N] column, one after the next; {} if none has a
/// number.
std::vector<double> Rows(const std::vector<double>& column, size_t count,
                         const std::vector<size_t>& rows) {
  std::vector<double> values;
  for (const size_t row : rows) {
    if ((row + 1) * count > column.size()) return {};
    const auto begin =
        column.begin() + static_cast<std::ptrdiff_t>(row * count);
    values.insert(values.end(), begin,
                  begin + static_cast<std::ptrdiff_t>(count));
  }
  const bool defined = std::ranges::any_of(
      values, [](double value) { return !std::isnan(value); });
  return defined ? values : std::vector<double>();
}

/// Returns module and operand ("activation") of each tensor, as the model's
/// graph says. For a log without a graph they are the parts before and after
/// the last `_`.
Json NamesJson(const runlog::RunLog& log) {
  const runlog::GraphIndex graph(log.provenance.graph);
  Json list = Json::array();
  for (const std::string& name : log.tensors.names) {
    if (const auto place = graph.Find(name)) {
      const std::string& site = graph.tensors().site[*place];
      list.push_back(
          {{"name", name},
           {"module", site.empty() ? graph.tensors().module[*place] : site},
           {"operand", graph.tensors().kind[*place]}});
      continue;
    }
    // npos + 1 is 0: a name without a module is an operand's.
    const size_t end = name.rfind('_');
    list.push_back({{"name", name},
                    {"module", name.substr(0, end == name.npos ? 0 : end)},
                    {"operand", name.substr(end + 1)}});
  }
  return list;
}

Json StatisticsJson(const TensorColumns& tensors,
                    const std::vector<size_t>& rows) {
  Json json = Json::object();
  for (const size_t place : ShownStatistics()) {
    const auto values =
        Rows(tensors.statistics[place], tensors.names.size(), rows);
    if (values.empty()) continue;
    json[runlog::kTensorStatistics[place].name] = Float32Base64(values);
  }
  return json;
}

Json StepsJson(const std::vector<int64_t>& step,
               const std::vector<size_t>& rows) {
  Json list = Json::array();
  for (const size_t row : rows) list.push_back(step[row]);
  return list;
}

/// Returns the bytes and counts of one step's tensors that are not 0, as [N] of
/// pairs.
Json HistogramsAt(const std::vector<int32_t>& histogram, size_t count,
                  size_t row) {
  Json tensors = Json::array();
  for (size_t tensor = 0; tensor < count; ++tensor) {
    const auto bytes = std::span(histogram).subspan(
        (row * count + tensor) * runlog::kScaleBytes, runlog::kScaleBytes);
    Json pairs = Json::array();
    for (size_t byte = 0; byte < bytes.size(); ++byte) {
      if (bytes[byte] != 0) pairs.push_back({byte, bytes[byte]});
    }
    tensors.push_back(std::move(pairs));
  }
  return tensors;
}

/// Returns the histograms of one direction; a step without room has no pairs.
/// Null without a column.
Json HistogramJson(const std::vector<int32_t>& histogram, size_t count,
                   const std::vector<size_t>& rows, size_t& bytes,
                   PageBudget& budget) {
  Json steps(rows.size(), Json::array());
  for (size_t i = rows.size(); i-- > 0;) {
    if ((rows[i] + 1) * count * runlog::kScaleBytes > histogram.size()) {
      return nullptr;
    }
    Json at = HistogramsAt(histogram, count, rows[i]);
    const size_t size = PageJson(at).size();
    if (size > bytes || !budget.Take(size)) {
      budget.Note(
          "The page has histograms of E8M0 scales of the last steps alone, "
          "because those of all would have too many bytes.");
      at = Json(count, Json::array());
    } else {
      bytes -= size;
    }
    steps[i] = std::move(at);
  }
  return steps;
}

Json ScalesJson(const TensorColumns& tensors, const std::vector<size_t>& rows,
                size_t bytes, PageBudget& budget) {
  if (tensors.e8m0_histogram.empty() &&
      tensors.e8m0_histogram_columnwise.empty()) {
    return nullptr;
  }
  const size_t count = tensors.names.size();
  size_t half = bytes / 2;
  Json rowwise =
      HistogramJson(tensors.e8m0_histogram, count, rows, half, budget);
  half += bytes / 2;  // what the first one left, too
  return {{"rowwise", std::move(rowwise)},
          {"columnwise", HistogramJson(tensors.e8m0_histogram_columnwise, count,
                                       rows, half, budget)}};
}

/// Joins the rows of all steps into bins.
struct Bins {
  size_t steps = 0;
  size_t width = 1;

  size_t count() const { return (steps + width - 1) / width; }
};

/// Returns the mean over each bin of a [S, width] column, as [bins, width].
template <typename T>
std::vector<double> BinMeans(const std::vector<T>& column, size_t width,
                             const Bins& bins) {
  std::vector<double> means(bins.count() * width, 0.0);
  for (size_t bin = 0; bin < bins.count(); ++bin) {
    const size_t first = bin * bins.width;
    const size_t end = std::min(bins.steps, first + bins.width);
    const std::span<double> mean = std::span(means).subspan(bin * width, width);
    for (size_t step = first; step < end; ++step) {
      for (size_t i = 0; i < width; ++i) {
        mean[i] += static_cast<double>(column[step * width + i]) /
                   static_cast<double>(end - first);
      }
    }
  }
  return means;
}

/// Base64 makes 16 bytes of three float32 values.
constexpr double kBytesPerValue = 16.0 / 3.0;

/// Returns how many values fit into `bytes`.
size_t ValuesIn(size_t bytes) {
  return static_cast<size_t>(static_cast<double>(bytes) / kBytesPerValue);
}

constexpr size_t kMostMoeBins = 100;

}  // namespace

Json TensorsJson(const runlog::RunLog& log, const std::string& arm,
                 size_t bytes, PageBudget& budget) {
  const TensorColumns& tensors = log.tensors;
  const size_t count = tensors.names.size();
  if (tensors.step.empty() || count == 0) return nullptr;
  bytes = std::min(bytes, budget.left());
  Json names = NamesJson(log);
  for (size_t most = kMostTensorSteps; most > 0; most /= 2) {
    std::vector<size_t> rows = SpreadRows(tensors.step.size(), most);
    if (most == 1) rows = {tensors.step.size() - 1};
    Json json{{"seed", log.provenance.seed},
              {"steps", StepsJson(tensors.step, rows)},
              {"tensors", names},
              {"statistics", StatisticsJson(tensors, rows)}};
    const size_t size = PageJson(json).size();
    if (size > bytes || !budget.Take(size)) continue;
    if (rows.size() < tensors.step.size()) {
      budget.Note(fmt::format(
          "Of the statistics of tensors of arm {}, which {} steps have, the "
          "page has {}.",
          arm, tensors.step.size(), rows.size()));
    }
    json["e8m0"] = ScalesJson(tensors, rows, bytes - size, budget);
    return json;
  }
  budget.Note(fmt::format(
      "The page leaves out the statistics of tensors of arm {}, because it "
      "would have too many bytes.",
      arm));
  return nullptr;
}

Json MoeJson(const runlog::RunLog& log, const std::string& arm, size_t bytes,
             PageBudget& budget) {
  const MoeColumns& moe = log.moe;
  const auto layers = static_cast<size_t>(moe.layers);
  const auto experts = static_cast<size_t>(moe.experts);
  const size_t width = layers * experts;
  const size_t steps = moe.step.size();
  if (steps == 0 || width == 0 ||
      moe.tokens_per_expert.size() != steps * width) {
    return nullptr;
  }
  const bool has_entropy = moe.router_entropy.size() == steps * layers;
  const size_t room = ValuesIn(std::min(bytes, budget.left()));
  const size_t most =
      std::min(kMostMoeBins, room / (width + (has_entropy ? layers : 0) + 1));
  if (most == 0) {
    budget.Note(fmt::format(
        "The page leaves out the experts of arm {}, because it would have too "
        "many bytes.",
        arm));
    return nullptr;
  }
  const Bins bins{steps, (steps + most - 1) / most};
  Json first_steps = Json::array();
  for (size_t bin = 0; bin < bins.count(); ++bin) {
    first_steps.push_back(moe.step[bin * bins.width]);
  }
  Json json{{"seed", log.provenance.seed},
            {"steps", std::move(first_steps)},
            {"bin", bins.width},
            {"layers", layers},
            {"experts", experts},
            {"tokens_per_expert",
             Float32Base64(BinMeans(moe.tokens_per_expert, width, bins))},
            {"router_entropy", nullptr}};
  if (has_entropy) {
    json["router_entropy"] =
        Float32Base64(BinMeans(moe.router_entropy, layers, bins));
  }
  return budget.Fit(std::move(json), "the experts of arm " + arm);
}

Json ExchangeJson(const runlog::RunLog& log, const std::string& arm,
                  size_t bytes, PageBudget& budget) {
  const runlog::ExchangeColumns& exchange = log.exchange;
  const auto ranks = static_cast<size_t>(exchange.ranks);
  if (exchange.step.empty() || ranks == 0 ||
      exchange.bytes_by_pair.size() != ranks * ranks) {
    return nullptr;
  }
  if (ranks * ranks > ValuesIn(std::min(bytes, budget.left()))) {
    budget.Note(fmt::format(
        "The page leaves out the exchange of arm {}, because it would have too "
        "many bytes.",
        arm));
    return nullptr;
  }
  const auto sum = [](const std::vector<int64_t>& column) {
    return std::accumulate(column.begin(), column.end(), 0.0,
                           [](double of, int64_t value) {
                             return of + static_cast<double>(value);
                           });
  };
  return budget.Fit({{"seed", log.provenance.seed},
                     {"ranks", ranks},
                     {"steps", exchange.step.size()},
                     {"bytes_by_pair", Float32Base64(exchange.bytes_by_pair)},
                     {"bytes_to_self", sum(exchange.bytes_to_self)},
                     {"bytes_within_nodes", sum(exchange.bytes_within_nodes)},
                     {"bytes_between_nodes", sum(exchange.bytes_between_nodes)},
                     {"messages", sum(exchange.messages)}},
                    "the exchange of arm " + arm);
}

}  // namespace isoloss::report
