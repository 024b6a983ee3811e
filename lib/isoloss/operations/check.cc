#include "isoloss/operations/check.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <mutex>
#include <tuple>

#include "isoloss/base/error.h"

namespace isoloss::operations {
namespace {

/// Finds the same operation one step before. It has the same type and module,
/// and the same number among such operations of its file.
class PreviousSteps {
 public:
  explicit PreviousSteps(const std::vector<OperationFile>& files) {
    for (const OperationFile& file : files) {
      std::map<std::pair<std::string, std::string>, size_t> met;
      for (const Operation& operation : file.operations) {
        const size_t number = met[{operation.type, operation.module}]++;
        const auto [place, is_new] = places_.try_emplace(
            Key{file.rank, file.step, operation.type, operation.module, number},
            &operation);
        if (is_new) continue;
        ThrowError(ErrorKind::kFormat,
                   "{}: is of step {} and rank {}, as a file before it is. "
                   "Give files of one run, each step and rank once.",
                   file.path, file.step, file.rank);
      }
    }
  }

  const Operation* Before(const OperationFile& file, size_t index) const {
    return At(file, file.step - 1, file.operations[index],
              NumberOf(file, index));
  }

  /// Returns the update of a linear module's weight. It has the name of the
  /// module, or of its parameter `weight`.
  const Operation* UpdateBefore(const OperationFile& file, size_t index) const {
    const Operation& linear = file.operations[index];
    if (!linear.is_linear()) return nullptr;
    for (const std::string& name : UpdateNamesOf(linear.module)) {
      for (const char* type : {"adamw", "muon"}) {
        const auto found =
            places_.find(Key{file.rank, file.step - 1, type, name, 0});
        if (found != places_.end()) return found->second;
      }
    }
    return nullptr;
  }

  /// Returns all calls of the module so many steps before.
  std::vector<const Operation*> CallsBefore(const OperationFile& file,
                                            size_t index, int64_t steps) const {
    std::vector<const Operation*> calls;
    while (const Operation* call = At(file, file.step - steps,
                                      file.operations[index], calls.size())) {
      calls.push_back(call);
    }
    return calls;
  }

  std::optional<std::vector<const Operation*>> OnOtherRanks(
      const OperationFile& file, size_t index, int64_t steps) const {
    const Operation& operation = file.operations[index];
    std::vector<const Operation*> calls;
    // A file may claim any number of ranks, but only those that are given have
    // the operation.
    for (int64_t rank = 0; rank < file.ranks; ++rank) {
      if (rank == file.rank) continue;
      const size_t before = calls.size();
      size_t number = steps == 0 ? NumberOf(file, index) : 0;
      while (const Operation* call =
                 AtRank(rank, file.step - steps, operation, number)) {
        calls.push_back(call);
        if (steps == 0) break;
        ++number;
      }
      if (calls.size() == before) return std::nullopt;
    }
    return calls;
  }

  /// Returns null if that call is the operation of Before.
  const Operation* CallBefore(const OperationFile& file, size_t index) const {
    const Operation& operation = file.operations[index];
    const size_t number = NumberOf(file, index);
    if (number > 0) return At(file, file.step, operation, number - 1);
    size_t last = 0;  // calls of the step before
    while (At(file, file.step - 1, operation, last + 1) != nullptr) ++last;
    return last == 0 ? nullptr : At(file, file.step - 1, operation, last);
  }

 private:
  static size_t NumberOf(const OperationFile& file, size_t index) {
    const Operation& operation = file.operations[index];
    size_t number = 0;
    for (size_t i = 0; i < index; ++i) {
      const Operation& other = file.operations[i];
      number += other.type == operation.type && other.module == operation.module
                    ? 1U
                    : 0U;
    }
    return number;
  }
  const Operation* At(const OperationFile& file, int64_t step,
                      const Operation& operation, size_t number) const {
    return AtRank(file.rank, step, operation, number);
  }
  const Operation* AtRank(int64_t rank, int64_t step,
                          const Operation& operation, size_t number) const {
    const auto found =
        places_.find(Key{rank, step, operation.type, operation.module, number});
    return found == places_.end() ? nullptr : found->second;
  }

  using Key = std::tuple<int64_t, int64_t, std::string, std::string, size_t>;
  std::map<Key, const Operation*> places_;
};

/// Sets the update of a linear module's weight in its own file. If there are
/// several updates, no order tells which one belongs to which call.
void SetUpdateHere(const OperationFile& file, OperationCase& given) {
  if (!given.operation.is_linear()) return;
  const std::vector<std::string> names = UpdateNamesOf(given.operation.module);
  size_t count = 0;
  for (size_t i = 0; i < file.operations.size(); ++i) {
    const Operation& update = file.operations[i];
    if (!update.is_update() ||
        std::ranges::find(names, update.module) == names.end()) {
      continue;
    }
    given.update_here = count++ == 0 ? &update : nullptr;
    given.update_is_later = i > given.index;
  }
}

/// Returns the ends of the groups of experts whose rows a combine reads. They
/// are those of the last grouped product before it with equally many rows.
const Integers* GroupEndsFor(const OperationFile& file, size_t index) {
  const size_t rows = file.operations[index].Find("rows")->extent[0];
  for (size_t i = index; i-- > 0;) {
    const Operation& operation = file.operations[i];
    if (operation.type == "grouped_linear" &&
        operation.Find("x")->extent[0] == rows) {
      return operation.FindIntegers("group_ends");
    }
  }
  return nullptr;
}

/// Returns the mesh of each file. Files of one step tell together which ranks
/// have the same tokens.
std::vector<std::vector<MeshAxis>> MeshesOf(
    const std::vector<OperationFile>& files) {
  std::map<std::pair<int64_t, std::string>, std::vector<const OperationFile*>>
      steps;
  for (const OperationFile& file : files) {
    steps[{file.step, file.mesh}].push_back(&file);
  }
  std::map<std::pair<int64_t, std::string>, std::vector<MeshAxis>> meshes;
  for (const auto& [key, step] : steps) meshes[key] = MeshOf(step);
  std::vector<std::vector<MeshAxis>> found;
  for (const OperationFile& file : files) {
    found.push_back(meshes[{file.step, file.mesh}]);
  }
  return found;
}

/// Counts what is done, for those who ask.
class Counter {
 public:
  explicit Counter(const CheckOptions& options) : options_(options) {}

  void Add(const char* what, size_t all) {
    if (options_.progress == nullptr) return;
    const std::lock_guard lock(mutex_);
    options_.progress(what, ++done_, all);
  }
  void Reset() { done_ = 0; }

 private:
  const CheckOptions& options_;
  std::mutex mutex_;
  size_t done_ = 0;
};

/// Finds how the products of all linear operations were added up.
class SumsOfCases {
 public:
  SumsOfCases(const std::vector<OperationCase>& cases,
              const ModuleChoices& modules, const precision::Recipe& recipe) {
    for (const OperationCase& given : cases) {
      begins_.push_back(products_.size());
      if (!given.operation.is_linear()) continue;
      std::ranges::move(
          LinearProductsOf(given,
                           {modules.Of(given.operation).precision, recipe}),
          std::back_inserter(products_));
    }
    begins_.push_back(products_.size());
  }

  size_t size() const { return products_.size(); }
  void Find(Executor& executor, const std::function<void()>& done) {
    found_ = FindSums(products_, executor, done);
  }
  /// Returns nothing before Find.
  std::span<const SumsOfProduct> Of(size_t number) const {
    if (found_.empty()) return {};
    return std::span(found_).subspan(begins_[number],
                                     begins_[number + 1] - begins_[number]);
  }

 private:
  std::vector<Product> products_;
  std::vector<size_t> begins_;
  std::vector<SumsOfProduct> found_;
};

}  // namespace

/// Returns whether a trial of this tensor looks at the step before.
static bool LooksBack(const Operation& operation, const std::string& part) {
  return operation.is_linear() || operation.type == "router" ||
         (operation.type == "adamw" && part.starts_with("exp_avg")) ||
         operation.type == "muon";
}

OperationCase CaseOf(const OperationFile& file, size_t index,
                     size_t file_number) {
  return {.operation = file.operations[index],
          .previous = nullptr,
          .where = file.Where(index),
          .file = file_number,
          .index = index};
}

Finding FindingOf(const OperationCase& given, const std::string& part,
                  const std::string& kind, oracle::Comparison comparison) {
  return {.file = given.file,
          .operation = given.index,
          .type = given.operation.type,
          .module = given.operation.module,
          .part = part,
          .tensor = given.operation.module + "_" + kind,
          .comparison = std::move(comparison),
          .knows_previous =
              given.previous != nullptr || !LooksBack(given.operation, part)};
}

std::vector<Finding> CheckOperations(const std::vector<OperationFile>& files,
                                     const precision::Recipe& recipe,
                                     const CheckOptions& options,
                                     Executor& executor) {
  const ModuleChoices modules(files, recipe, options);
  const PreviousSteps previous(files);
  std::vector<std::pair<size_t, size_t>> places;
  for (size_t f = 0; f < files.size(); ++f) {
    for (size_t i = 0; i < files[f].operations.size(); ++i) {
      places.emplace_back(f, i);
    }
  }
  const std::vector<std::vector<MeshAxis>> meshes = MeshesOf(files);
  std::vector<OperationCase> cases;
  for (const auto& [f, i] : places) {
    const OperationFile& file = files[f];
    cases.push_back({.operation = file.operations[i],
                     .previous = previous.Before(file, i),
                     .call_before = previous.CallBefore(file, i),
                     .update_before = previous.UpdateBefore(file, i),
                     .earlier =
                         [&previous, &file, i = i](int64_t steps) {
                           return previous.CallsBefore(file, i, steps);
                         },
                     .on_other_ranks =
                         [&previous, &file, i = i](int64_t steps) {
                           return previous.OnOtherRanks(file, i, steps);
                         },
                     .shares = RankSharesOf(file, meshes[f]),
                     .step = file.step,
                     .mesh = meshes[f],
                     .ranks = file.ranks,
                     .where = file.Where(i),
                     .file = f,
                     .index = i});
    SetUpdateHere(file, cases.back());
  }
  SumsOfCases sums(cases, modules, recipe);
  Counter counter(options);
  if (!options.demands_fp32) {
    sums.Find(executor, [&] { counter.Add("adders sought", sums.size()); });
  }
  counter.Reset();
  std::vector<std::vector<Finding>> found(places.size());
  executor.ParallelFor(places.size(), [&](size_t task) {
    const OperationCase& given = cases[task];
    const OperationFile& file = files[given.file];
    const size_t i = given.index;
    const std::string& type = given.operation.type;
    if (given.operation.is_linear()) {
      CheckLinear(given, {modules.Of(given.operation).precision, recipe},
                  sums.Of(task), found[task]);
    } else if (type == "router") {
      CheckRouter(given, found[task]);
    } else if (type == "dispatch") {
      CheckDispatch(given, found[task]);
    } else if (type == "combine") {
      CheckCombine(given, GroupEndsFor(file, i), found[task]);
    } else if (type == "adamw") {
      CheckAdamW(given, found[task]);
    } else if (type == "muon") {
      CheckMuon(given, found[task]);
    } else {
      CheckLoss(given, found[task]);
    }
    counter.Add("operations compared", places.size());
  });
  std::vector<Finding> findings;
  for (std::vector<Finding>& of_one : found) {
    std::ranges::move(of_one, std::back_inserter(findings));
  }
  return findings;
}

}  // namespace isoloss::operations
