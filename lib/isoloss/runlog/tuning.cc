#include "isoloss/runlog/tuning.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>

#include "isoloss/base/digest.h"
#include "isoloss/runlog/recording.h"

namespace isoloss::runlog {
namespace {

std::optional<double> NumberIn(std::string_view text) {
  double value = 0;
  const char* const end = text.data() + text.size();
  const auto result = std::from_chars(text.data(), end, value);
  if (result.ec != std::errc() || result.ptr != end) return std::nullopt;
  return value;
}

/// Reads "[0.5, 1.0]", as config::Writer prints it. Special  empty if the text
/// is of another form.
std::vector<double> NumbersIn(std::string_view text) {
  if (!text.starts_with("[") || !text.ends_with("]")) return {};
  text = text.substr(1, text.size() - 2);
  std::vector<double> values;
  while (!text.empty()) {
    const size_t comma = std::min(text.find(", "), text.size());
    const auto value = NumberIn(text.substr(0, comma));
    if (!value) return {};
    values.push_back(*value);
    text.remove_prefix(std::min(text.size(), comma + 2));
  }
  return values;
}

std::string_view Unquoted(std::string_view text) {
  return text.size() < 2 ? "" : text.substr(1, text.size() - 2);
}

/// Returns an arm's recipes with all that the experiment says of them; "" if
/// the arm has bf16 alone.
std::string RecipeText(const std::map<std::string, std::string>& keys,
                       const std::string& arm) {
  const std::string of_arm = fmt::format("arms.{}.", arm);
  std::string text;
  std::vector<std::string> tables;
  for (const auto& [key, value] : keys) {
    if (!key.starts_with(of_arm)) continue;
    const std::string name = key.substr(of_arm.size());
    if (name != "recipe" && !name.starts_with("then.")) continue;
    text += fmt::format("{} = {}\n", name, value);
    tables.push_back(fmt::format("recipes.{}.", Unquoted(value)));
  }
  if (text == "recipe = \"bf16\"\n") return "";
  for (const auto& [key, value] : keys) {
    for (const std::string& table : tables) {
      if (key.starts_with(table)) text += fmt::format("{} = {}\n", key, value);
    }
  }
  return text;
}

}  // namespace

bool IsOfConfig(std::string_view key) {
  for (const std::string_view apart : {"data.paths", "train.seeds"}) {
    if (key == apart) return false;
  }
  for (const std::string_view alone :
       {"log.eval_every", "log.eval_sequences", "parallel.dispatch_units",
        "routing.mode"}) {
    if (key == alone) return true;
  }
  return key.starts_with("model.") || key.starts_with("data.") ||
         key.starts_with("train.");
}

std::string TuningDigest(const std::string& experiment_text,
                         const std::string& corpus_digest,
                         const std::string& arm) {
  std::string text;
  const auto keys = KeysOf(experiment_text);
  for (const auto& [key, value] : keys) {
    if (!IsOfConfig(key) || key == "train.lr" || key.starts_with("log.")) {
      continue;
    }
    text += fmt::format("{} = {}\n", key, value);
  }
  text += RecipeText(keys, arm);
  return DigestToHex(DigestOf(text + "corpus = " + corpus_digest));
}

bool IsSweep(std::span<const double> rates, std::span<const double> held_out) {
  double last = 0;
  for (const double rate : rates) {
    if (!(rate > last)) return false;
    last = rate;
  }
  return rates.size() == held_out.size();
}

std::optional<RateSweep> SweepOf(const Provenance& provenance) {
  auto keys = KeysOf(provenance.experiment_text);
  RateSweep sweep{
      .rates = NumbersIn(keys["tuning.rates"]),
      .held_out = NumbersIn(keys["tuning.held_out"]),
      .seeds = NumbersIn(keys["tuning.seeds"]).size(),
      .configuration = std::string(Unquoted(keys["tuning.configuration"]))};
  if (sweep.rates.empty() || !IsSweep(sweep.rates, sweep.held_out)) {
    return std::nullopt;
  }
  return sweep;
}

std::optional<double> RateOf(const Provenance& provenance) {
  return NumberIn(KeysOf(provenance.experiment_text)["train.lr"]);
}

}  // namespace isoloss::runlog
