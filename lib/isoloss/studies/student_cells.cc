#include "isoloss/studies/student_cells.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <nlohmann/json.hpp>

#include "isoloss/base/atomic_file.h"
#include "isoloss/base/error.h"
#include "isoloss/base/job_pool.h"
#include "isoloss/base/threads.h"
#include "isoloss/campaign/interrupt.h"
#include "isoloss/campaign/json_file.h"
#include "isoloss/config/writer.h"
#include "isoloss/formats/quantization.h"
#include "isoloss/report/heartbeat.h"
#include "isoloss/studies/student.h"

namespace isoloss::studies {
namespace {

namespace fs = std::filesystem;
using report::Json;

/// One run to be trained.
struct StudentJob {
  std::string arm;
  uint64_t seed = 0;
  fs::path file;
};

std::vector<StudentJob> JobsOf(const StudentCell& cell,
                               const fs::path& folder) {
  std::vector<StudentJob> jobs;
  for (uint64_t seed = 1; seed <= cell.student.seeds; ++seed) {
    for (const std::string& arm : cell.arms) {
      jobs.push_back(
          {arm, seed, folder / fmt::format("{}-seed{}.json", arm, seed)});
    }
  }
  return jobs;
}

void WriteStudentRun(const claims::RunCurve& run, const fs::path& file) {
  Json json{{"seed", run.seed},
            {"diverged", run.diverged},
            {"losses", Json::array()}};
  for (const auto& [step, loss] : run.losses) {
    Json entry{{"step", step}};
    report::PutNumber(entry, "held_out", loss);
    json["losses"].push_back(std::move(entry));
  }
  WriteFileAtomically(file, json.dump(1) + "\n");
}

claims::RunCurve ReadStudentRun(const fs::path& path) {
  const campaign::JsonFile file(path, "run of a student");
  file.Check(R"({"seed": "i", "diverged": "b",
                 "losses": [{"step": "i", "held_out": "n"}]})");
  claims::RunCurve run{.seed = file.json().at("seed").get<int64_t>(),
                       .diverged = file.json().at("diverged").get<bool>()};
  for (const Json& entry : file.json().at("losses")) {
    if (entry.at("held_out").is_null()) {  // not finite
      run.diverged = true;
      continue;
    }
    run.losses.emplace_back(entry.at("step").get<int64_t>(),
                            entry.at("held_out").get<double>());
  }
  return run;
}

}  // namespace

void CheckStudentCell(const StudentCell& cell) {
  for (const std::string& arm : cell.arms) {
    if (std::ranges::count(StudentArms(), std::string_view{arm}) > 0) continue;
    ThrowError(ErrorKind::kConfig,
               "claim: a contrast names arm {} of cell {}, but students have "
               "{}. Correct the name.",
               arm, cell.name, fmt::join(StudentArms(), ", "));
  }
  const formats::Quantization format =
      formats::QuantizationByName(cell.student.format);
  if (!format.is_mx()) {
    ThrowError(ErrorKind::kConfig,
               "claim: cell {} has format {}, but students take MX formats "
               "that round to nearest. Write \"e4m3.floor\".",
               cell.name, cell.student.format);
  }
  // Activations of each layer, and its weights with gradients and moments.
  const auto width = static_cast<double>(cell.student.width);
  const auto hidden = static_cast<double>(cell.student.hidden);
  const double bytes =
      4 * static_cast<double>(cell.student.depth) *
      (static_cast<double>(cell.student.batch) * (3 * width + 2 * hidden) +
       10 * width * hidden);
  if (bytes > 0x1p30) {
    ThrowError(ErrorKind::kConfig,
               "claim: a student of cell {} needs {:.1f} GiB, but may need 1. "
               "Make it smaller.",
               cell.name, bytes / 0x1p30);
  }
}

std::string StudentText(const StudentCell& cell) {
  const claims::Student& student = cell.student;
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

void EstimateStudent(StudentCell& cell) {
  constexpr int64_t kSteps = 10;
  claims::Student few = cell.student;
  few.steps = kSteps;
  const std::atomic<bool> never{false};
  const auto start = std::chrono::steady_clock::now();
  TrainStudent(few, cell.arms.front(), 1, never);
  const std::chrono::duration<double> taken =
      std::chrono::steady_clock::now() - start;
  // Each of the few steps is followed by an evaluation, a third of its work.
  constexpr double kOfStep = 0.75;
  cell.seconds = kOfStep * taken.count() / kSteps *
                 static_cast<double>(cell.student.steps) *
                 static_cast<double>(cell.student.seeds * cell.arms.size()) /
                 AvailableProcessors();
}

bool TrainStudents(const StudentCell& cell, const fs::path& folder) {
  const std::atomic<bool>& stop = campaign::InterruptFlag();
  fs::create_directories(folder);
  std::vector<StudentJob> jobs = JobsOf(cell, folder);
  const size_t all = jobs.size();
  std::erase_if(jobs,
                [](const StudentJob& job) { return fs::exists(job.file); });
  std::atomic<size_t> finished{all - jobs.size()};
  report::Heartbeat heartbeat;
  const auto start = std::chrono::steady_clock::now();
  const auto show = [&] {
    const std::chrono::duration<double> taken =
        std::chrono::steady_clock::now() - start;
    const size_t done = finished.load();
    const std::string left = report::TimeLeft(
        taken.count(), static_cast<double>(done - (all - jobs.size())),
        static_cast<double>(all - done));
    heartbeat.Set(fmt::format("claim: {}; {} of {} runs{}{}", cell.name, done,
                              all, left.empty() ? "" : ", ", left));
  };
  show();
  const int workers = AvailableProcessors();
  JobPool().Run(
      jobs.size(), {.workers = workers, .side_by_side = workers},
      [&stop] { return stop.load(); },
      [&](size_t job, ThreadTeam&) {
        const claims::RunCurve run =
            TrainStudent(cell.student, jobs[job].arm, jobs[job].seed, stop);
        if (stop.load()) return;
        WriteStudentRun(run, jobs[job].file);
        ++finished;
        show();
      });
  return !stop.load();
}

claims::CellCurves ReadStudents(const StudentCell& cell,
                                const fs::path& folder) {
  claims::CellCurves curves{.name = cell.name,
                            .steps = cell.student.steps,
                            .seeds = cell.student.seeds};
  for (const std::string& arm : cell.arms) {
    curves.arms.push_back({.arm = arm});
  }
  for (const StudentJob& job : JobsOf(cell, folder)) {
    if (!fs::exists(job.file)) continue;
    claims::RunCurve run = ReadStudentRun(job.file);
    if (run.seed != static_cast<int64_t>(job.seed)) {
      ThrowError(ErrorKind::kFormat,
                 "{}: it is of seed {}, but its name says {}. Remove it, and "
                 "it is trained again.",
                 job.file.string(), run.seed, job.seed);
    }
    std::ranges::find(curves.arms, job.arm, &claims::ArmCurves::arm)
        ->runs.push_back(std::move(run));
  }
  return curves;
}

}  // namespace isoloss::studies
