#include "isoloss/studies/student_runs.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>
#include <numeric>

#include "isoloss/base/atomic_file.h"
#include "isoloss/base/error.h"
#include "isoloss/base/executor.h"
#include "isoloss/base/job_pool.h"
#include "isoloss/config/writer.h"
#include "isoloss/formats/quantization.h"
#include "isoloss/system/json_file.h"
#include "isoloss/treatments/student.h"

namespace isoloss::studies {
namespace {

namespace fs = std::filesystem;
using document::Json;

/// Students that train side by side use at most this much memory in all.
constexpr double kMostBytesSideBySide = 0x1p30;

fs::path StudentFile(const fs::path& folder, const train::Run& run) {
  return folder / (run.Name() + ".json");
}

void WriteStudentRun(const estimators::RunCurve& run, const fs::path& file) {
  Json json{{"seed", run.seed},
            {"diverged", run.diverged},
            {"losses", Json::array()}};
  for (const auto& [step, loss] : run.losses) {
    json["losses"].push_back({{"step", step}, {"held_out", loss}});
  }
  WriteFileAtomically(file, json.dump(1) + "\n");
}

[[noreturn]] void RejectStudentRun(const fs::path& path,
                                   const std::string& what) {
  ThrowError(ErrorKind::kFormat, "{}: {}. Remove it, and it is trained again.",
             path.string(), what);
}

/// Reads a run of `steps` steps. It has a loss after each tenth of the steps,
/// up to the step at which it diverged.
estimators::RunCurve ReadStudentRun(const fs::path& path, int64_t steps) {
  const system::JsonFile file(path, "run of a student");
  file.Check(R"({"seed": "i", "diverged": "b",
                 "losses": [{"step": "i", "held_out": "n"}]})");
  estimators::RunCurve run{.seed = file.json().at("seed").get<int64_t>(),
                           .diverged = file.json().at("diverged").get<bool>()};
  constexpr auto kAll = size_t{estimators::kStudentEvaluations};
  const Json& losses = file.json().at("losses");
  if (losses.size() > kAll || (losses.size() < kAll && !run.diverged)) {
    RejectStudentRun(
        path, fmt::format("it has {} losses, but a student's run has {}, and "
                          "fewer only if it diverged",
                          losses.size(), kAll));
  }
  for (const Json& entry : losses) {
    const auto step = entry.at("step").get<int64_t>();
    const int64_t expected = static_cast<int64_t>(run.losses.size() + 1) *
                             steps / estimators::kStudentEvaluations;
    if (step != expected) {
      RejectStudentRun(
          path, fmt::format("its loss number {} is of step {}, but must "
                            "be of step {} of {}",
                            run.losses.size() + 1, step, expected, steps));
    }
    if (entry.at("held_out").is_null()) {
      RejectStudentRun(
          path, fmt::format("its loss of step {} is null, but a run ends "
                            "before a loss that is not finite",
                            step));
    }
    run.losses.emplace_back(step, entry.at("held_out").get<double>());
  }
  return run;
}

void CheckStudent(const estimators::ClaimCell& cell,
                  const std::set<std::string>& arms) {
  for (const std::string& arm : arms) {
    if (std::ranges::count(treatments::StudentArms(), std::string_view{arm}) >
        0)
      continue;
    ThrowError(ErrorKind::kConfig,
               "claim: a contrast names arm {} of cell {}, but students have "
               "{}. Correct the name.",
               arm, cell.name, fmt::join(treatments::StudentArms(), ", "));
  }
  const formats::Quantization format =
      formats::QuantizationByName(cell.student->format);
  if (format.is_mx()) return;
  ThrowError(ErrorKind::kConfig,
             "claim: cell {} has format {}, but students take MX formats that "
             "round to nearest. Write \"e4m3.floor\".",
             cell.name, cell.student->format);
}

int WorkersFor(const estimators::Student& student) {
  return std::min(AvailableProcessors(),
                  static_cast<int>(kMostBytesSideBySide / student.Bytes()));
}

/// Implements Cell::execute.
void TrainStudents(const estimators::Student& student,
                   const std::vector<train::Run>& runs, const fs::path& folder,
                   const train::RunnerHooks& hooks) {
  std::vector<size_t> missing;
  for (size_t run = 0; run < runs.size(); ++run) {
    if (fs::exists(StudentFile(folder, runs[run]))) {
      hooks.on_kept(run, {});
    } else {
      missing.push_back(run);
    }
  }
  const auto stopped = [&hooks] { return hooks.stop->load(); };
  const int workers = WorkersFor(student);
  JobPool().Run(missing.size(), {.workers = workers, .side_by_side = workers},
                stopped, [&](size_t job, Executor&) {
                  const size_t index = missing[job];
                  const train::Run& run = runs[index];
                  const estimators::RunCurve curve = treatments::TrainStudent(
                      student, run.arm->name, run.seed, [&] {
                        hooks.on_step(index, {});
                        return !stopped();
                      });
                  if (stopped()) return;
                  WriteStudentRun(curve, StudentFile(folder, run));
                  hooks.on_finish(index, {});
                });
}

/// Returns the operations that one thread does in a second.
double StudentRate() {
  estimators::Student few;
  few.steps = estimators::kStudentEvaluations;
  const auto start = std::chrono::steady_clock::now();
  treatments::TrainStudent(few, "exempt", 1, [] { return true; });
  const std::chrono::duration<double> taken =
      std::chrono::steady_clock::now() - start;
  return few.Operations() / taken.count();
}

}  // namespace

Cell StudentCell(const estimators::ClaimCell& cell,
                 const std::set<std::string>& arms) {
  CheckStudent(cell, arms);
  Cell result{.name = cell.name, .experiment = {}};
  train::Experiment& experiment = result.experiment;
  for (const std::string& arm : arms) {
    experiment.arms.emplace_back().name = arm;
  }
  experiment.train.seeds.resize(cell.student->seeds);
  std::iota(experiment.train.seeds.begin(), experiment.train.seeds.end(), 1);
  experiment.train.steps = cell.student->steps;
  experiment.log.eval_every =
      cell.student->steps / estimators::kStudentEvaluations;
  result.execute = [student = *cell.student](
                       const std::vector<train::Run>& runs,
                       const fs::path& folder,
                       const train::RunnerHooks& hooks) {
    TrainStudents(student, runs, folder, hooks);
  };
  result.result_file = StudentFile;
  return result;
}

std::string StudentText(const estimators::ClaimCell& cell) {
  const estimators::Student& student = *cell.student;
  config::Writer text;
  text.Text("name", cell.name);
  text.Integer("width", static_cast<int64_t>(student.width));
  text.Integer("depth", static_cast<int64_t>(student.depth));
  text.Integer("hidden", static_cast<int64_t>(student.hidden));
  text.Integer("batch", static_cast<int64_t>(student.batch));
  text.Integer("steps", student.steps);
  text.Real("lr", student.lr, {});
  text.Real("label_noise", student.label_noise, {});
  text.Text("format", student.format);
  return text.text();
}

void EstimateStudents(const std::vector<estimators::ClaimCell>& cells,
                      std::vector<Cell>& of_study) {
  double rate = 0;  // unknown
  for (size_t i = 0; i < cells.size(); ++i) {
    if (!cells[i].student) continue;
    if (rate == 0) rate = StudentRate();
    const train::Experiment& experiment = of_study[i].experiment;
    const auto runs = static_cast<double>(experiment.arms.size() *
                                          experiment.train.seeds.size());
    const double side_by_side =
        std::min<double>(WorkersFor(*cells[i].student), runs);
    of_study[i].seconds =
        runs * cells[i].student->Operations() / rate / side_by_side;
  }
}

std::map<std::string, std::vector<estimators::RunCurve>> ReadStudents(
    const Cell& cell, const fs::path& folder) {
  std::map<std::string, std::vector<estimators::RunCurve>> by_arm;
  for (const train::Run& planned : train::PlanRuns(cell.experiment)) {
    const fs::path file = StudentFile(folder, planned);
    if (!fs::exists(file)) continue;
    estimators::RunCurve run =
        ReadStudentRun(file, cell.experiment.train.steps);
    if (run.seed != static_cast<int64_t>(planned.seed)) {
      RejectStudentRun(
          file, fmt::format("it is of seed {}, but its name says {}", run.seed,
                            planned.seed));
    }
    by_arm[planned.arm->name].push_back(std::move(run));
  }
  return by_arm;
}

}  // namespace isoloss::studies
