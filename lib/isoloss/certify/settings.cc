#include "isoloss/certify/settings.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "isoloss/base/printable.h"

namespace isoloss::certify {
namespace {

using runlog::Provenance;

struct TextSetting {
  const char* name;
  std::string Provenance::*value;
  bool is_wanted;  ///< people are told if no log has it
};

constexpr TextSetting kTexts[] = {
    {"program", &Provenance::tool_version, true},
    {"commit", &Provenance::commit, true},
    {"compiler", &Provenance::compiler, false},
    {"device", &Provenance::cpu_target, true},
    {"settings (config_digest)", &Provenance::config_digest, true},
    {"recipe", &Provenance::recipe, false},
    {"recipe of GEMM sites", &Provenance::resolved_recipe, false},
    {"text (corpus_digest)", &Provenance::corpus_digest, false},
    {"exchange", &Provenance::exchange, false},
    {"routing", &Provenance::routing, false},
    {"perturbation", &Provenance::perturbation, false},
    {"numerics of the program", &Provenance::numerics_digest, false},
};

struct NumberSetting {
  const char* name;
  int64_t Provenance::*value;
};

constexpr NumberSetting kNumbers[] = {
    {"seed", &Provenance::seed},
    {"parameters", &Provenance::parameters},
    {"ranks", &Provenance::ranks},
    {"copies of experts", &Provenance::expert_data_parallel},
};

bool IsTold(const std::string& text) {
  return !text.empty() && text != "unknown";
}

/// Returns a device without its number: equal cards compute alike.
std::string WithoutNumber(const std::string& device) {
  const size_t colon = device.rfind(':');
  const bool has_number =
      colon != std::string::npos && colon + 1 < device.size() &&
      device.find_first_not_of("0123456789", colon + 1) == std::string::npos;
  return has_number ? device.substr(0, colon) : device;
}

std::string Shown(const std::string& text) {
  constexpr size_t kMost = 60;
  const std::string line = Printable(text.substr(0, text.find('\n')));
  return line.size() <= kMost ? line : line.substr(0, kMost) + "...";
}

/// Returns ranks by the names of files, which merged logs do not have.
bool HaveSameFiles(const RecordedRun& a, const RecordedRun& b) {
  return std::ranges::equal(
      a.logs, b.logs, {}, [](const auto& log) { return log.first; },
      [](const auto& log) { return log.first; });
}

void AddNew(const std::string& text, std::vector<std::string>& list) {
  if (std::ranges::find(list, text) == list.end()) list.push_back(text);
}

/// Compares what two logs tell.
void Add(const Provenance& a, const Provenance& b, SettingsPair& pair) {
  for (const TextSetting& setting : kTexts) {
    const bool is_device = setting.value == &Provenance::cpu_target;
    const auto of = [&](const Provenance& p) {
      return is_device ? WithoutNumber(p.*setting.value) : p.*setting.value;
    };
    const std::string left = of(a);
    const std::string right = of(b);
    if (is_device && (left == "cuda" || left == "xpu")) {
      AddNew("the model of the card", pair.unknown);
    }
    // Another recipe has other sites and another arithmetic.
    const bool is_of_recipe = setting.value == &Provenance::resolved_recipe ||
                              setting.value == &Provenance::numerics_digest;
    if (is_of_recipe && a.recipe != b.recipe) continue;
    const bool is_perturbed = setting.value == &Provenance::perturbation;
    if (left != right && (is_perturbed || (IsTold(left) && IsTold(right)))) {
      AddNew(fmt::format("{} `{}` and `{}`", setting.name, Shown(left),
                         Shown(right)),
             pair.different);
    } else if (setting.is_wanted && (!IsTold(left) || !IsTold(right))) {
      AddNew(setting.name, pair.unknown);
    }
  }
  for (const NumberSetting& setting : kNumbers) {
    const int64_t left = a.*setting.value;
    const int64_t right = b.*setting.value;
    if (setting.value == &Provenance::seed && (left < 0 || right < 0)) {
      AddNew(setting.name, pair.unknown);
      if (left == right) continue;
    }
    if (left == right) continue;
    AddNew(fmt::format("{} {} and {}", setting.name, left, right),
           pair.different);
  }
  if (a.workers != b.workers) {
    AddNew(fmt::format("The runs had other numbers of threads: {} and {}.",
                       a.workers, b.workers),
           pair.remarks);
  }
}

}  // namespace

SettingsPair CompareSettings(const RecordedRun& first,
                             const RecordedRun& other) {
  SettingsPair pair;
  if (first.logs.empty() || other.logs.empty()) return pair;
  Add(first.log().provenance, other.log().provenance, pair);
  for (const auto& [rank, run] : first.logs) {
    const auto partner = other.logs.find(rank);
    if (partner == other.logs.end()) continue;
    Add(run.log.provenance, partner->second.log.provenance, pair);
  }
  const bool have_as_many =
      first.log().provenance.ranks == other.log().provenance.ranks;
  if (have_as_many && !HaveSameFiles(first, other)) {
    pair.different.emplace_back("logs of other ranks, or of all in one");
  }
  return pair;
}

}  // namespace isoloss::certify
