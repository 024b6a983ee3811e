#include "isoloss/layouts/comparison.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <mutex>
#include <system_error>
#include <utility>

#include "isoloss/base/error.h"
#include "isoloss/base/printable.h"
#include "isoloss/layouts/partial_sums.h"
#include "isoloss/layouts/step_comparison.h"
#include "isoloss/operations/partial_sums.h"
#include "isoloss/precision/recipe_file.h"

namespace isoloss::layouts {
namespace {

using operations::Finding;
using operations::Operation;
using operations::OperationFile;

std::string RecipeNameOf(const LayoutsRequest& request, const Recording& a,
                         const Recording& b) {
  std::string name = request.recipe;
  for (const Recording* side : {&a, &b}) {
    for (const OperationFile& file : side->files) {
      if (file.recipe.empty() || file.recipe == name) continue;
      if (!name.empty()) {
        ThrowError(ErrorKind::kConfig,
                   "{}: says that its recipe is `{}`, but {} is compared by "
                   "`{}`. Layouts are compared under one recipe.",
                   file.path, Printable(file.recipe),
                   request.recipe.empty() ? "the other side" : "--recipe",
                   Printable(name));
      }
      name = file.recipe;
    }
  }
  return name.empty() ? "bf16" : name;
}

void KeepSteps(const std::vector<int64_t>& steps, Recording& recording) {
  std::erase_if(recording.files, [&](const OperationFile& file) {
    return std::ranges::find(steps, file.step) == steps.end();
  });
}

/// Checks the operations of one side. Products that are sums over ranks though
/// no placement says so are judged here, and are taken from the files while the
/// others are checked.
class SideCheck {
 public:
  SideCheck(Recording& recording, const precision::Recipe& recipe,
            const operations::ModuleChoices& modules)
      : recording_(recording), recipe_(recipe), modules_(modules) {}

  std::vector<Finding> Run(const operations::CheckOptions& options,
                           Executor& executor) {
    std::vector<std::pair<size_t, size_t>> places;
    for (size_t f = 0; f < recording_.files.size(); ++f) {
      for (size_t i = 0; i < recording_.files[f].operations.size(); ++i) {
        if (recording_.files[f].operations[i].is_linear()) {
          places.emplace_back(f, i);
        }
      }
    }
    executor.ParallelFor(places.size(), [&](size_t task) {
      FindPartial(places[task].first, places[task].second);
    });
    for (const Partial& partial : partials_) Take(partial);
    std::vector<Finding> findings = operations::CheckOperations(
        recording_.files, recipe_, options, executor);
    for (auto& [place, tensor] : taken_) {
      recording_.files[place.file]
          .operations[place.index]
          .floats[operations::ResultName(place.role)] = std::move(tensor);
    }
    std::erase_if(findings, [](const Finding& f) { return f.is_right(); });
    return findings;
  }

  size_t undeclared() const { return partials_.size(); }

 private:
  struct Partial {
    size_t file;
    size_t index;
    precision::GemmRole role;
  };

  void FindPartial(size_t f, size_t i) {
    const operations::OperationCase given = CaseOf(recording_.files[f], i, f);
    const Operation& operation = given.operation;
    const size_t parts = UndeclaredParts(operation, recording_);
    if (parts < 2) return;
    for (const operations::Product& product :
         LinearProductsOf(given, {modules_.Of(operation).precision, recipe_})) {
      const auto whole = Compare(product);
      if ((whole && whole->other() == 0) ||
          CompareParts(product, parts).other() > 0) {
        continue;
      }
      const std::lock_guard lock(mutex_);
      partials_.push_back({f, i, product.role});
    }
  }

  void Take(const Partial& partial) {
    auto& floats =
        recording_.files[partial.file].operations[partial.index].floats;
    const auto found = floats.find(operations::ResultName(partial.role));
    taken_.emplace_back(partial, std::move(found->second));
    floats.erase(found);
  }

  Recording& recording_;
  const precision::Recipe& recipe_;
  const operations::ModuleChoices& modules_;
  std::mutex mutex_;
  std::vector<Partial> partials_;
  std::vector<std::pair<Partial, operations::Floats>> taken_;
};

}  // namespace

const char* StatusName(Status status) {
  switch (status) {
    case Status::kEqual:
      return "equal";
    case Status::kExplained:
      return "explained";
    case Status::kNotJudged:
      return "not judged";
    case Status::kNotExplained:
      return "not explained";
  }
  return "";
}

const TensorResult* LayoutsComparison::First() const {
  const auto found =
      std::ranges::find(tensors, Status::kNotExplained, &TensorResult::status);
  return found == tensors.end() ? nullptr : &*found;
}

int64_t LayoutsComparison::Count(Status status) const {
  return std::ranges::count(tensors, status, &TensorResult::status);
}

system::ExitCode LayoutsComparison::Outcome() const {
  if (First() != nullptr) return system::ExitCode::kFail;
  return tensors.empty() || Count(Status::kNotJudged) > 0
             ? system::ExitCode::kInconclusive
             : system::ExitCode::kPass;
}

LayoutsComparison CompareLayouts(const LayoutsRequest& request,
                                 Executor& executor) {
  LayoutsComparison result = {.a = ReadRecording(request.a),
                              .b = ReadRecording(request.b),
                              .recipe = {}};
  std::error_code error;  // the files were read just now
  if (std::filesystem::equivalent(result.a.files.front().path,
                                  result.b.files.front().path, error)) {
    ThrowError(ErrorKind::kConfig,
               "{} and {}: are one recording, which shows nothing against "
               "itself. Give the recording of another layout.",
               result.a.name, result.b.name);
  }
  std::ranges::set_intersection(result.a.Steps(), result.b.Steps(),
                                std::back_inserter(result.steps));
  if (result.steps.empty()) {
    ThrowError(ErrorKind::kConfig,
               "{} and {}: have no step in common, but layouts are compared "
               "step by step. Record the same steps of both.",
               result.a.name, result.b.name);
  }
  result.recipe = RecipeNameOf(request, result.a, result.b);
  const precision::Recipe recipe = precision::RecipeByNameOrFile(result.recipe);
  std::vector<operations::ModuleChoices> modules;
  std::vector<CheckedSide> sides;
  modules.reserve(2);
  for (const auto& [name, side] :
       {std::pair("A", &result.a), std::pair("B", &result.b)}) {
    KeepSteps(result.steps, *side);
    modules.emplace_back(side->files, recipe, request.options);
    SideCheck check(*side, recipe, modules.back());
    sides.push_back({name, *side, modules.back(), recipe,
                     check.Run(request.options, executor)});
    if (check.undeclared() == 0) continue;
    result.notes.push_back(fmt::format(
        "{} products of {} are sums over ranks with rounded parts. No "
        "placement says so.",
        check.undeclared(), name));
  }
  Carry carry;
  for (const int64_t step : result.steps) {
    CompareStep(Batch(result.a, step), Batch(result.b, step), sides[0],
                sides[1], carry, result);
  }
  return result;
}

}  // namespace isoloss::layouts
