#include "isoloss/operations/mapping.h"

#include <fmt/format.h>

#include <map>
#include <optional>

#include "isoloss/base/error.h"
#include "isoloss/base/printable.h"
#include "isoloss/base/text_file.h"
#include "isoloss/config/reader.h"
#include "isoloss/hdf5/sealed_file.h"
#include "isoloss/operations/array_file.h"
#include "isoloss/operations/operation_file.h"

namespace isoloss::operations {
namespace {

namespace fs = std::filesystem;

// These names may stand in [operations.tensors], by the type of the tensor.
constexpr const char* kFloatTensors[] = {"x",
                                         "momentum_before",
                                         "momentum_after",
                                         "coefficients",
                                         "weight_after",
                                         "weight",
                                         "output",
                                         "bias",
                                         "grad_output",
                                         "grad_input",
                                         "grad_weight",
                                         "logits",
                                         "scores",
                                         "weights",
                                         "tokens",
                                         "rows",
                                         "addend",
                                         "loss",
                                         "parameter_before",
                                         "gradient",
                                         "exp_avg_before",
                                         "exp_avg_sq_before",
                                         "parameter_after",
                                         "exp_avg_after",
                                         "exp_avg_sq_after"};
constexpr const char* kIntegerTensors[] = {"group_ends", "expert_ids", "source",
                                           "labels", "wgrad_signs"};
constexpr const char* kOperandWholes[] = {"amax_margin", "largest_block_scale"};
/// Moments may have codes, as operands do.
constexpr const char* kStoredMoments[] = {
    "exp_avg_before", "exp_avg_after", "exp_avg_sq_before", "exp_avg_sq_after"};
constexpr const char* kTexts[] = {
    "score_function", "expected",   "decay",    "corrections",    "rounding",
    "momentum_rule",  "scale_rule", "ns_dtype", "amax_algorithm", "amax_ranks"};
constexpr const char* kReals[] = {"scale", "lr",           "beta1",   "beta2",
                                  "eps",   "weight_decay", "momentum"};
constexpr const char* kWholes[] = {
    "top_k",   "normalize",    "step",     "groups",  "limited_groups",
    "dropped", "ignore_index", "ns_steps", "nesterov"};

class MappingReader {
 public:
  explicit MappingReader(const FileOpener& open) : open_(open) {}

  OperationFile Read(const config::Document& document,
                     const std::string& path) {
    config::Reader fields(document);
    OperationFile file = {.path = path};
    fields.Text("run", file.run);
    fields.Integer("step", file.step, 1, hdf5::kMaxCounted);
    fields.Text("arm", file.arm);
    fields.Text("recipe", file.recipe);
    int64_t seed = -1;
    fields.Integer("seed", seed, 0, hdf5::kMaxCounted);
    if (seed >= 0) file.seed = seed;
    for (config::Reader& entry : fields.TableList("operations")) {
      file.operations.push_back(OperationOf(entry));
      entry.RejectUnknown();
    }
    fields.RejectUnknown();
    DecodeStates(file);
    CheckExtents(file);
    return file;
  }

 private:
  Operation OperationOf(config::Reader& fields) {
    Operation operation;
    fields.Require("type", "Name one: \"linear\", \"router\", ...");
    fields.Text("type", operation.type);
    fields.Text("module", operation.module);
    std::vector<std::string> texts(std::begin(kTexts), std::end(kTexts));
    for (const LinearOperand& operand : kLinearOperands) {
      texts.push_back(fmt::format("{}_four_over_six", operand.name));
    }
    for (const std::string& key : texts) {
      std::string text;
      fields.Text(key, text);
      if (!text.empty()) operation.texts[key] = text;
    }
    for (const char* key : kReals) {
      std::optional<double> value;
      fields.Real(key, value, config::Closed(-1e300, 1e300));
      if (value) operation.numbers[key] = *value;
    }
    for (const char* key : kWholes) AddWhole(key, fields, operation);
    for (const char* key : kOperandWholes) AddWhole(key, fields, operation);
    config::Reader tensors = fields.Section("tensors");
    config::Reader types = fields.Section("dtypes");
    AddTensors(tensors, types, operation);
    tensors.RejectUnknown();
    types.RejectUnknown();
    SpreadCodes(operation);
    return operation;
  }

  static void AddWhole(const char* key, config::Reader& fields,
                       Operation& operation) {
    if (!fields.Has(key)) return;
    int64_t value = 0;
    fields.Integer(key, value, -hdf5::kMaxCounted, hdf5::kMaxCounted);
    operation.numbers[key] = static_cast<double>(value);
  }

  void AddTensors(config::Reader& tensors, config::Reader& types,
                  Operation& operation) {
    const auto add = [&](const std::string& name, auto& map, auto&& convert) {
      std::string place;
      tensors.Text(name, place);
      std::string type;
      types.Text(name, type);
      if (place.empty()) return;
      auto array = convert(Stored(place, name, tensors),
                           fmt::format("{} ({})", Printable(place), name));
      bytes_ += array.values.size() * sizeof(array.values[0]);
      if (bytes_ > hdf5::ReadLimit()) {
        tensors.Fail(name, fmt::format("and the tensors before it have {} "
                                       "bytes, but at most {} are read. Map "
                                       "fewer operations.",
                                       bytes_, hdf5::ReadLimit()));
      }
      if (!type.empty()) array.type = type;
      map[name] = std::move(array);
    };
    for (const char* name : kFloatTensors) {
      add(name, operation.floats, FloatsOf);
    }
    for (const char* name : kIntegerTensors) {
      add(name, operation.integers, IntegersOf);
    }
    const auto add_codes = [&](const char* of) {
      add(fmt::format("{}_codes", of), operation.codes, CodesOf);
      const std::string scales = fmt::format("{}_scales", of);
      std::string place;
      tensors.Text(scales, place);
      if (!place.empty() && Stored(place, scales, tensors).type == "F32") {
        add(scales, operation.floats, FloatsOf);
      } else {
        add(scales, operation.codes, CodesOf);
      }
    };
    for (const char* moment : kStoredMoments) add_codes(moment);
    for (const LinearOperand& operand : kLinearOperands) {
      add_codes(operand.name);
      for (const char* what : {"tensor_scale", "amax_history"}) {
        add(fmt::format("{}_{}", operand.name, what), operation.floats,
            FloatsOf);
      }
    }
  }

  /// Reads "FILE.npy" or "FILE.safetensors:TENSOR".
  const StoredArray& Stored(const std::string& place, const std::string& key,
                            const config::Reader& tensors) {
    const size_t colon = place.find(':');
    const std::string file = place.substr(0, colon);
    const bool is_npy = file.ends_with(".npy");
    const bool is_plain =
        file.find('/') == std::string::npos && !file.starts_with('.');
    const bool is_known =
        is_npy ? colon == std::string::npos
               : file.ends_with(".safetensors") && colon != std::string::npos;
    if (!is_plain || !is_known || file.find('\0') != std::string::npos) {
      tensors.Fail(key, fmt::format("is `{}`, but must be \"FILE.npy\" or "
                                    "\"FILE.safetensors:TENSOR\" with a FILE "
                                    "in the mapping's own folder. Correct it.",
                                    Printable(place)));
    }
    auto found = files_.find(file);
    if (found == files_.end()) {
      const std::span<const std::byte> bytes = open_(file);
      auto& arrays = files_[file];
      if (is_npy) {
        arrays[""] = ParseNpy(bytes, file);
      } else {
        arrays = ParseSafetensors(bytes, file);
      }
      found = files_.find(file);
    }
    const std::string name = is_npy ? "" : place.substr(colon + 1);
    const auto array = found->second.find(name);
    if (array == found->second.end()) {
      tensors.Fail(key, fmt::format("is `{}`, but that file has no such "
                                    "tensor. Correct it.",
                                    Printable(place)));
    }
    return array->second;
  }

  const FileOpener& open_;
  std::map<std::string, std::map<std::string, StoredArray>> files_;
  size_t bytes_ = 0;
};

}  // namespace

OperationFile ParseMapping(std::string_view text, const std::string& file,
                           const FileOpener& open) {
  const config::Document document(text, file);
  return MappingReader(open).Read(document, file);
}

OperationFile ReadMapping(const fs::path& path) {
  const std::string text =
      ReadTextFile(path, "Pass a mapping.", config::kMaxTomlBytes);
  std::map<std::string, std::vector<std::byte>> held;
  std::vector<hdf5::ReadCharge> charges;
  const FileOpener open = [&](const std::string& name) {
    const fs::path file = path.parent_path() / name;
    if (fs::is_symlink(fs::symlink_status(file))) {
      ThrowError(ErrorKind::kConfig,
                 "{}: is a symbolic link, but a mapping names files of its own "
                 "folder only. Copy the file there.",
                 file.string());
    }
    std::vector<std::byte>& bytes = held[name];
    bytes = ReadWholeFile(file);
    // Memory takes twice the bytes on disk, as BF16 needs.
    charges.push_back(hdf5::Charge(file.string(), 0, 2 * bytes.size()));
    return std::span<const std::byte>(bytes);
  };
  OperationFile result = ParseMapping(text, path.string(), open);
  result.charges = std::move(charges);
  return result;
}

}  // namespace isoloss::operations
