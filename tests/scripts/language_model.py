"""A word language model with truncated backpropagation: gradients are clipped, and the parameters change by hand.

There is no optimizer and no loader. The hidden state goes from batch to batch, detached. Each epoch ends with an
evaluation under no_grad, and the script with a test.
"""

import torch
from torch import nn

SUBJECTS = ("the river", "a small boat", "the old engine", "every signal", "one gull")
VERBS = ("carries", "follows", "never meets", "passes", "waits for")
OBJECTS = ("the tide", "another harbour", "a long train", "the morning", "its own shadow")
BATCH, LENGTH, CLIP = 4, 9, 0.25

torch.manual_seed(61)


def sentences(count):
    for _ in range(count):
        chosen = torch.randint(0, 5, (3,)).tolist()
        for part, index in zip((SUBJECTS, VERBS, OBJECTS), chosen, strict=True):
            yield from part[index].split()
        yield "."


texts = [list(sentences(count)) for count in (60, 24, 24)]
words = sorted({word for text in texts for word in text})
number = {word: index for index, word in enumerate(words)}


def columns(text, batches):
    """Rows of BATCH words, of which each column is a part of the text; enough for this many batches."""
    tokens = torch.tensor([number[word] for word in text])
    rows = batches * LENGTH + 1
    assert len(tokens) >= rows * BATCH
    return tokens[: rows * BATCH].view(BATCH, rows).t().contiguous()


class Model(nn.Module):
    def __init__(self, size=20):
        super().__init__()
        self.drop = nn.Dropout(0.2)
        self.encoder = nn.Embedding(len(words), size)
        self.rnn = nn.LSTM(size, size, 2, dropout=0.2)
        self.decoder = nn.Linear(size, len(words))
        self.decoder.weight = self.encoder.weight
        for parameter in (self.encoder.weight, self.decoder.bias):
            nn.init.uniform_(parameter, -0.1, 0.1)

    def forward(self, tokens, hidden):
        output, hidden = self.rnn(self.drop(self.encoder(tokens)), hidden)
        return self.decoder(self.drop(output)).flatten(0, 1).log_softmax(dim=1), hidden

    def begin(self):
        weight = next(self.parameters())
        return weight.new_zeros(2, BATCH, 20), weight.new_zeros(2, BATCH, 20)


def batches(source):
    for row in range(0, len(source) - 1, LENGTH):
        yield source[row : row + LENGTH], source[row + 1 : row + 1 + LENGTH].flatten()


def detached(hidden):
    return tuple(each.detach() for each in hidden)


def evaluate(source):
    model.eval()
    total, hidden = 0.0, model.begin()
    with torch.no_grad():
        for tokens, targets in batches(source):
            output, hidden = model(tokens, hidden)
            hidden = detached(hidden)
            total += len(tokens) * criterion(output, targets).item()
    return total / (len(source) - 1)


training, validation, test = (columns(text, count) for text, count in zip(texts, (11, 4, 4), strict=True))
model, criterion = Model(), nn.NLLLoss()
rate, best = 5.0, None
for epoch in range(2):
    model.train()
    hidden = model.begin()
    for index, (tokens, targets) in enumerate(batches(training)):
        model.zero_grad()
        output, hidden = model(tokens, detached(hidden))
        loss = criterion(output, targets)
        loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        for parameter in model.parameters():
            parameter.data.add_(parameter.grad, alpha=-rate)
        print("train", epoch, index, f"{loss:.9g}", f"{norm:.9g}")
    found = evaluate(validation)
    if best is None or found < best:
        best = found
    else:
        rate /= 4
    print("validation", epoch, f"{found:.9g}", "rate", rate)
print("test", f"{evaluate(test):.9g}")
