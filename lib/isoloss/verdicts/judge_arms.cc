#include "isoloss/verdicts/judge_arms.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <nlohmann/json.hpp>
#include <system_error>

#include "isoloss/base/error.h"
#include "isoloss/base/nearest_name.h"
#include "isoloss/base/printable.h"
#include "isoloss/base/text_file.h"
#include "isoloss/gate/level.h"
#include "isoloss/report/json.h"
#include "isoloss/runlog/recording.h"
#include "isoloss/system/output_file.h"
#include "isoloss/verdicts/report_page.h"

namespace isoloss::verdicts {
namespace {

namespace fs = std::filesystem;

void CheckArms(const std::vector<compare::Run>& runs,
               const std::string& baseline_arm,
               const std::vector<std::string>& candidates) {
  if (compare::RunsOfArm(runs, baseline_arm).empty()) {
    ThrowError(ErrorKind::kConfig,
               "gate: {} logs of arm {}, but none of the baseline `{}`. Give "
               "its logs too or name another arm with --baseline.{}",
               runs.size(), fmt::join(candidates, ", "), baseline_arm,
               DidYouMean(baseline_arm, candidates));
  }
  if (candidates.empty()) {
    ThrowError(
        ErrorKind::kConfig,
        "gate: {} logs, all of arm `{}`, but a verdict needs a second "
        "arm. Give the logs of both arms; ARM=FILE names the arm of a file, "
        "as in a=d1/train.log b=d2/train.log.",
        runs.size(), baseline_arm);
  }
}

/// Logs may come from anywhere: an arm's name must not lead out of the folder.
std::string VerdictName(const std::string& candidate, size_t candidates) {
  if (candidates == 1) return kVerdictFile;
  if (candidate.find('/') != std::string::npos) {
    ThrowError(ErrorKind::kConfig,
               "gate: an arm is named `{}`, but verdict-ARM.json is a file of "
               "--out, so the name may hold no `/`. Rename the arm.",
               candidate);
  }
  return fmt::format("verdict-{}.json", candidate);
}

/// Returns the names of the verdicts that WriteVerdicts writes.
std::vector<std::string> VerdictFiles(
    const std::vector<gate::Judgement>& judgements) {
  std::vector<std::string> files = {kVerdictFile};
  if (judgements.size() == 1) return files;
  for (const gate::Judgement& judgement : judgements) {
    files.push_back(VerdictName(judgement.candidate.arm, judgements.size()));
  }
  return files;
}

bool IsVerdict(const std::filesystem::path& file) {
  const auto json = nlohmann::json::parse(
      ReadTextFile(file, "Choose another folder."), nullptr, false);
  return json.is_object() && json.contains("schema_version") &&
         json.contains("outcome") && json.contains("exit_code");
}

/// Throws if RemoveVerdicts and WriteVerdicts may not remove `file`.
void CheckVerdict(const std::filesystem::path& file) {
  system::CheckOutput(file, {}, "verdict", IsVerdict);
}

/// Writes the page of these verdicts.
void WritePage(const std::vector<gate::Judgement>& judgements,
               const JudgedRuns& judged, const fs::path& file) {
  std::vector<document::Json> verdicts;
  for (const gate::Judgement& judgement : judgements) {
    verdicts.push_back(report::VerdictJson(judgement));
  }
  WriteReportPage({.runs = judged.runs,
                   .approved = judged.approved,
                   .verdicts = &verdicts,
                   .probes = judged.evidence.probes,
                   .ensembles = judged.evidence.ensembles},
                  file);
}

/// Returns whether the file is the verdict on an arm of a command that judged
/// several. A copy under a name of the user's is none.
bool IsVerdictOnItsArm(const fs::path& file) {
  try {
    const auto json = nlohmann::json::parse(
        ReadTextFile(file, "Choose another folder."), nullptr, false);
    if (!json.is_object() || !json.contains("exit_code")) return false;
    const auto arm = json.value("/candidate/arm"_json_pointer, std::string());
    return file.filename().string() == fmt::format("verdict-{}.json", arm);
  } catch (const std::exception&) {
    return false;  // too large, unreadable or of other types: no verdict
  }
}

/// Returns every file that WriteVerdicts may have written for these arms, and
/// the verdicts on any other arm.
std::vector<std::filesystem::path> VerdictsBelow(
    const train::Experiment& experiment, const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> files = {folder / kVerdictFile};
  for (const train::Arm& arm : experiment.arms) {
    files.push_back(folder / VerdictName(arm.name, 2));
  }
  for (const fs::path& file : VerdictsIn(folder)) {
    if (std::ranges::count(files, file) == 0 && IsVerdictOnItsArm(file)) {
      files.push_back(file);
    }
  }
  return files;
}

void Remove(const fs::path& verdict) {
  std::error_code error;
  fs::remove(verdict, error);
  if (!error || error == std::errc::not_a_directory) return;  // logs will fail
  ThrowError(ErrorKind::kIo,
             "{}: an earlier verdict can't be removed: {}. Choose another "
             "folder with --out.",
             verdict.string(), error.message());
}

/// Removes verdicts of earlier calls on arms that are not among `files`.
void RemoveStale(const std::vector<std::string>& files,
                 const fs::path& folder) {
  for (const fs::path& file : VerdictsIn(folder)) {
    if (std::ranges::count(files, file.filename().string()) != 0) continue;
    if (!IsVerdictOnItsArm(file)) continue;
    fmt::print(stderr,
               "isoloss: removed {}: it is an earlier verdict on an arm that "
               "this call did not judge.\n",
               Printable(file.string()));
    Remove(file);
  }
}

/// Returns the controls without `candidate` itself.
gate::Controls Beside(const std::string& candidate, gate::Controls controls) {
  std::erase_if(controls.nulls, [&](const gate::ControlArm& null) {
    return null.arm == candidate;
  });
  controls.is_candidate =
      std::erase_if(controls.controls, [&](const gate::ControlArm& control) {
        return control.arm == candidate;
      }) > 0;
  return controls;
}

/// Returns whether level L5 has shown the candidate to be as good as the
/// baseline.
bool IsShown(const gate::Judgement& judgement) {
  return std::ranges::any_of(
      judgement.levels, [](const gate::LevelOutcome& level) {
        return level.name == gate::LevelName(gate::LevelId::l5_final_window) &&
               level.outcome == gate::Outcome::kPass;
      });
}

/// Judges all candidates, which share the baseline and so alpha. With Holm's
/// procedure the chance that any of those on the margin or beyond is shown to
/// be as good as the baseline is at most alpha. k candidates that are not shown
/// have alpha / k each; once some of them are shown, the rest are judged again.
/// A question of regression shares nothing, since its verdict is on all arms.
/// Source   Holm, Scandinavian Journal of Statistics 6 (1979), 65-70.
template <typename JudgeOne>
std::vector<gate::Judgement> JudgeSharing(
    const std::vector<std::string>& candidates, gate::Policy policy,
    const JudgeOne& judge) {
  std::vector<gate::Judgement> judgements(candidates.size());
  std::vector<bool> shown(candidates.size(), false);
  const auto open = [&] { return std::ranges::count(shown, false); };
  int64_t before = 0;
  while (open() > 0 && open() != before) {
    before = open();
    if (policy.question == compare::Question::kPrecision) {
      policy.sharing = before;
    }
    for (size_t i = 0; i < candidates.size(); ++i) {
      if (shown[i]) continue;
      judgements[i] = judge(candidates[i], policy);
    }
    for (size_t i = 0; i < candidates.size(); ++i) {
      shown[i] = shown[i] || IsShown(judgements[i]);
    }
    if (policy.question != compare::Question::kPrecision) break;
  }
  return judgements;
}

/// Says on stderr, and with each judgement, which approved arms have no new
/// run.
void NameUnjudged(std::vector<std::string> approved,
                  const std::vector<std::string>& judged,
                  std::vector<gate::Judgement>& judgements) {
  std::erase_if(approved, [&](const std::string& arm) {
    return std::ranges::find(judged, arm) != judged.end();
  });
  if (approved.empty()) return;
  const std::string warning =
      fmt::format("not judged, since no new log is of it: approved arm {}.",
                  Printable(fmt::format("{}", fmt::join(approved, ", "))));
  fmt::print(stderr, "isoloss: warning: {}\n", warning);
  for (gate::Judgement& judgement : judgements) {
    judgement.warnings.push_back(warning);
  }
}

}  // namespace

gate::Policy PolicyOf(const std::string& file,
                      const train::Experiment& experiment) {
  if (!file.empty()) return gate::ReadPolicy(file);
  const train::GateConfig& chosen = experiment.gate;
  gate::Policy policy;
  if (!chosen.policy.empty()) {
    policy = gate::ReadPolicy(experiment.path.parent_path() / chosen.policy);
  }
  if (!chosen.margin_percent) return policy;
  return gate::WithMargin(
      std::move(policy), *chosen.margin_percent,
      fmt::format("{}: gate.margin_percent", experiment.path.string()));
}

gate::Policy ForPrecision(gate::Policy policy,
                          const std::string& experiment_text) {
  if (policy.question != compare::Question::kPrecision ||
      !policy.margin_source.empty()) {
    return policy;
  }
  const auto keys = runlog::KeysOf(experiment_text);
  const auto chosen = keys.find("gate.margin_percent");
  if (chosen == keys.end()) {
    return gate::WithMargin(std::move(policy), gate::kOwnMarginPercent,
                            "default of isoloss' own experiments");
  }
  return gate::WithMargin(std::move(policy),
                          std::strtod(chosen->second.c_str(), nullptr),
                          "gate.margin_percent of the logs' experiment");
}

gate::Policy ForPrecision(gate::Policy policy,
                          const std::vector<compare::Run>& runs) {
  const compare::Run& first = runs.front();
  const std::string& text = first.log.provenance.experiment_text;
  const gate::Policy of_first = ForPrecision(policy, text);
  for (const compare::Run& run : runs) {
    const double margin =
        ForPrecision(policy, run.log.provenance.experiment_text).Margin();
    if (margin == of_first.Margin()) continue;
    ThrowError(ErrorKind::kConfig,
               "gate: the experiments of {} and {} have margins of {:g} % and "
               "{:g} %, so that the logs name no single one. Choose it with "
               "--margin or --policy.",
               compare::Label(first), compare::Label(run), of_first.Margin(),
               margin);
  }
  return of_first;
}

void CheckVerdicts(const train::Experiment& experiment,
                   const std::filesystem::path& folder) {
  for (const auto& file : VerdictsBelow(experiment, folder)) CheckVerdict(file);
  CheckReportPage(folder / kReportFile);
}

void RemoveVerdicts(const train::Experiment& experiment,
                    const std::filesystem::path& folder) {
  std::vector<fs::path> files = VerdictsBelow(experiment, folder);
  files.push_back(folder / kReportFile);
  for (const auto& file : files) Remove(file);
}

std::vector<gate::Judgement> JudgeArms(
    const std::vector<compare::Run>& runs, const std::string& baseline_arm,
    const gate::Policy& policy, const logs::EvidenceFiles& evidence,
    const std::optional<std::string>& control) {
  ArmRoles roles{.candidates = ArmsOf(runs)};
  std::erase(roles.candidates, baseline_arm);
  CheckArms(runs, baseline_arm, roles.candidates);
  if (policy.question == compare::Question::kPrecision) {
    roles = RolesOf(runs, baseline_arm, control);
  }
  return JudgeRoles(runs, baseline_arm, roles, policy, evidence);
}

std::vector<gate::Judgement> JudgeRoles(const std::vector<compare::Run>& runs,
                                        const std::string& baseline_arm,
                                        const ArmRoles& roles,
                                        const gate::Policy& policy,
                                        const logs::EvidenceFiles& evidence) {
  logs::CheckEvidenceIsUsed(evidence, policy.question, roles.candidates,
                            baseline_arm);
  const gate::Looks* looks = evidence.looks ? &*evidence.looks : nullptr;
  const gate::Controls controls =
      JudgeControls(runs, baseline_arm, roles, policy, looks);
  const auto pair = [&](const std::string& one, const std::string& other) {
    return compare::PairBySeed(one, compare::RunsOfArm(runs, one), other,
                               compare::RunsOfArm(runs, other));
  };
  std::map<std::string, gate::Controls> beside;
  for (const std::string& candidate : roles.candidates) {
    gate::Controls& of = beside[candidate] = Beside(candidate, controls);
    for (gate::ControlArm& null : of.nulls) {
      if (null.tests.empty()) continue;
      null.candidate_less =
          gate::JudgeControl(pair(null.arm, candidate), policy, looks).tests;
    }
  }
  return JudgeSharing(
      roles.candidates, policy,
      [&](const std::string& candidate, const gate::Policy& shared) {
        return logs::JudgeWith(pair(baseline_arm, candidate), evidence, shared,
                               &beside.at(candidate));
      });
}

std::vector<gate::Judgement> JudgeAgainstApproved(
    const std::vector<compare::Run>& runs,
    const std::vector<compare::Run>& approved, gate::Policy policy,
    const logs::EvidenceFiles& evidence) {
  policy.question = compare::Question::kRegression;
  logs::CheckEvidenceIsUsed(evidence, policy.question, ArmsOf(runs));
  std::vector<gate::Judgement> judgements;
  for (const std::string& arm : ArmsOf(runs)) {
    const auto approved_runs = compare::RunsOfArm(approved, arm);
    if (approved_runs.empty()) {
      const std::vector<std::string> known = ArmsOf(approved);
      ThrowError(ErrorKind::kConfig,
                 "gate: no approved log of arm `{}`; --against has arms {}. "
                 "Give its approved logs too.{}",
                 arm, fmt::join(known, ", "), DidYouMean(arm, known));
    }
    judgements.push_back(
        logs::JudgeWith(compare::PairBySeed(arm, approved_runs, arm,
                                            compare::RunsOfArm(runs, arm)),
                        evidence, policy));
  }
  NameUnjudged(ArmsOf(approved), ArmsOf(runs), judgements);
  return judgements;
}

std::vector<fs::path> VerdictsIn(const fs::path& folder) {
  std::vector<fs::path> files;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with("verdict-") && name.ends_with(".json")) {
      files.push_back(entry.path());
    }
  }
  std::ranges::sort(files);
  return files;
}

std::vector<std::string> WriteVerdicts(
    const std::vector<gate::Judgement>& judgements, const JudgedRuns& judged,
    const std::filesystem::path& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) {
    ThrowError(ErrorKind::kIo,
               "{}: the folder for the verdict can't be made: {}. Choose "
               "another one with --out.",
               folder.string(), error.message());
  }
  std::vector<std::string> files = VerdictFiles(judgements);
  for (const std::string& file : files) CheckVerdict(folder / file);
  CheckReportPage(folder / kReportFile);
  RemoveStale(files, folder);
  for (const gate::Judgement& judgement : judgements) {
    report::WriteJson(
        {&judgement, 1},
        folder / VerdictName(judgement.candidate.arm, judgements.size()));
  }
  if (judgements.size() > 1) {
    report::WriteJson(judgements, folder / kVerdictFile);
  }
  WritePage(judgements, judged, folder / kReportFile);
  files.emplace_back(kReportFile);
  return files;
}

}  // namespace isoloss::verdicts
