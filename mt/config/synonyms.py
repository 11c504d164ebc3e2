"""What newcomers from other toolkits write; docs/coming-from.md has more."""

# For each option or section, or two options with " and " between them, its names elsewhere; and the sentences
# about settings that are not in a config.
_NAMES = {
    "data.path": "dataset train_data datasource",
    "data.src": "src_lang source_lang lang_src",
    "data.tgt": "target_lang tgt_lang lang_tgt",
    "data.max_length": "seq_len src_seq_len tgt_seq_len max_seq_len max_len max_source_length",
    "tokenizer.kind": "tokenizer_type subword bpe",
    "tokenizer.path": "tokenizer_file",
    "tokenizer.max_size": "src_vocab_size num_merges",
    "tokenizer.shared": "share_vocab joined_dictionary",
    "model.d_model": "hidden_size hidden_dim embedding_dim embed_dim emb_size",
    "model.num_encoder_layers and model.num_decoder_layers": "layers num_layers n n_layers num_hidden_layers",
    "model.num_heads": "h",
    "model.d_ff": "ff_size dim_feedforward",
    "model.tie_output": "weight_tying tie_word_embeddings",
    "init_from.run": "finetune pretrained_model",
    "schedule.kind": "scheduler lr_scheduler",
    "schedule.learning_rate": "lr",
    "training.device": "gpu use_cuda cuda",
    "training.precision": "amp fp16 bf16 dtype",
    "training.batch_tokens": "batch_size per_device_train_batch_size max_tokens",
    "training.num_micro_batches": "gradient_accumulation_steps accum_count update_freq",
    "training.clip_norm": "max_grad_norm grad_clip",
    "training.max_steps": "train_steps updates max_update",
    "training.max_epochs": "num_train_epochs num_epochs n_epochs epochs",
    "validation.every_steps": "eval_steps valid_steps",
    "validation.patience": "early_stopping",
    "checkpoint.every_steps": "save_steps save_checkpoint_steps",
    "checkpoint.keep": "save_total_limit keep_checkpoint",
    "training": "optimizer",
    "Decoding options are given when a model is used, such as mt translate --beam 5.": "beam_size num_beams "
    "temperature",
    "The run directory is not part of a config: give it with --run PATH.": "output_dir model_dir "
    "model_folder experiment_name",
    "A run resumes automatically when it is trained again with the same config.": "resume load_model preload",
}
MEANINGS = {name: meaning for meaning, names in _NAMES.items() for name in names.split()}
