#include "isoloss/compare/training_scale.h"

#include <fmt/format.h>

#include <charconv>
#include <map>
#include <numbers>
#include <set>
#include <string_view>

#include "isoloss/base/saturating.h"
#include "isoloss/compare/rate_plateau.h"
#include "isoloss/runlog/recording.h"

namespace isoloss::compare {
namespace {

/// Reads the numbers of a resolved experiment.
class Numbers {
 public:
  explicit Numbers(const std::string& experiment_text)
      : keys_(runlog::KeysOf(experiment_text)) {}

  std::string Text(const std::string& key) const {
    const auto found = keys_.find(key);
    return found == keys_.end() ? "" : found->second;
  }

  /// Returns 0 and notes the lack if a key is missing.
  double Number(const std::string& key) {
    const std::string text = Text(key);
    double value = 0;
    const char* end = text.data() + text.size();
    const auto read = std::from_chars(text.data(), end, value);
    if (read.ec != std::errc() || read.ptr != end) missing_ = true;
    return value;
  }

  bool missing() const { return missing_; }

 private:
  std::map<std::string, std::string> keys_;
  bool missing_ = false;
};

/// A token meets these values of the model.
struct Met {
  double all = 0;
  double in_products = 0;  ///< of weights of GEMMs
};

/// `chosen` is the share of the routed experts that a token chooses.
Met ValuesMet(const runlog::GraphColumns& tensors, double chosen) {
  std::set<std::string_view> routed;  // sites whose rows chose an expert
  for (size_t i = 0; i < tensors.name.size(); ++i) {
    if (tensors.kind[i] != "activation") continue;
    if (tensors.rows_of[i] == "expert_tokens") routed.insert(tensors.site[i]);
  }
  Met met;
  for (size_t i = 0; i < tensors.name.size(); ++i) {
    if (tensors.kind[i] != "weight") continue;
    const std::string& site = tensors.site[i];
    const double values = (routed.contains(site) ? chosen : 1) *
                          static_cast<double>(tensors.rows[i]) *
                          static_cast<double>(tensors.columns[i]);
    met.all += values;
    if (!site.empty()) met.in_products += values;
  }
  return met;
}

void SetWork(const runlog::Provenance& provenance, TrainingScale& scale) {
  if (provenance.graph.empty()) return;
  Numbers numbers(provenance.experiment_text);
  const double experts = numbers.Number("model.num_experts");
  const double chosen =
      experts > 0 ? numbers.Number("model.top_k") / experts : 1;
  const double attention = numbers.Number("model.n_layers") *
                           numbers.Number("model.n_heads") *
                           (numbers.Number("model.qk_nope_head_dim") +
                            numbers.Number("model.qk_rope_head_dim") +
                            numbers.Number("model.v_head_dim")) *
                           numbers.Number("data.sequence_length") / 2;
  if (numbers.missing()) return;
  const Met met = ValuesMet(provenance.graph.tensors, chosen);
  scale.active_parameters = met.all;
  // A weight takes a multiplication and an addition forward, and the same
  // backward for each of both operands.
  constexpr double kPerWeight = 6;
  scale.flops = kPerWeight * (met.in_products + attention) *
                static_cast<double>(scale.tokens);
}

std::string ScheduleText(const runlog::StepColumns& steps) {
  const auto plateau = PlateauOf(steps.lr);
  if (!plateau.has_value()) return "a learning rate that the log does not tell";
  const int64_t first = steps.step[plateau->first];
  const int64_t last = steps.step[plateau->last];
  std::string text = fmt::format("learning rate {:g}", steps.lr[plateau->last]);
  if (plateau->first > 0) {
    text += fmt::format(" after warm-up to step {}", first);
  }
  if (last < steps.step.back()) {
    text += fmt::format(", falling from step {} on", last + 1);
  }
  return text;
}

std::optional<double> Bits(double nats) {
  // An older log has 0; NaN means unknown.
  if (!(nats > 0)) return std::nullopt;
  return BitsOf(nats);
}

}  // namespace

double BitsOf(double nats) { return nats / std::numbers::ln2; }

TrainingScale ScaleOf(const runlog::RunLog& log) {
  const runlog::Provenance& provenance = log.provenance;
  TrainingScale scale;
  scale.tokens =
      SaturatingMultiply(provenance.steps_planned, provenance.tokens_per_step);
  scale.parameters = provenance.parameters;
  SetWork(provenance, scale);
  scale.schedule = ScheduleText(log.steps);
  scale.of_bytes =
      Numbers(provenance.experiment_text).Text("data.source") == "\"files\"";
  scale.unigram_bits = Bits(provenance.unigram_entropy_nats);
  scale.bigram_bits = Bits(provenance.bigram_entropy_nats);
  if (provenance.deflated_bits > 0) {
    scale.deflated_bits = provenance.deflated_bits;
  }
  return scale;
}

}  // namespace isoloss::compare
