// Runs a compiled model without Python: tensors that torch.save wrote in, tensors for torch.load out.
//
//   ./run model.litz inputs.pt outputs.pt [calls]
#include <litz_torch.hpp>

#include <torch/csrc/jit/serialization/pickle.h>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <iostream>

static std::vector<char> read(const char* path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

int main(int count, char** arguments) {
  if (count < 4) return std::cerr << "run MODEL INPUTS OUTPUTS [CALLS]\n", 2;
  const int calls = count > 4 ? std::atoi(arguments[4]) : 1;
  try {
    const litz::Model model(arguments[1]);
    std::vector<at::Tensor> inputs;
    const c10::IValue saved = torch::jit::pickle_load(read(arguments[2]));
    for (const c10::IValue& each : saved.toListRef()) inputs.push_back(each.toTensor());
    std::vector<at::Tensor> results;
    const auto begin = std::chrono::steady_clock::now();
    for (int call = 0; call < calls; ++call) results = model(inputs);
    const std::chrono::duration<double, std::micro> spent = std::chrono::steady_clock::now() - begin;
    std::cout << spent.count() / calls << " microseconds a call\n";
    const std::vector<char> bytes = torch::jit::pickle_save(c10::ivalue::Tuple::create(
        std::vector<c10::IValue>(results.begin(), results.end())));
    std::ofstream(arguments[3], std::ios::binary).write(bytes.data(), std::streamsize(bytes.size()));
  } catch (const litz::Error& error) {
    return std::cerr << "error " << error.code << ": " << error.what() << '\n', 1;
  } catch (const std::exception& error) {
    return std::cerr << error.what() << '\n', 1;
  }
}
