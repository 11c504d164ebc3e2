cd /work/exp; python -m mt train --config /work/main/configs/multi30k-en-de-speedrun.yaml --run runs/sr1 --set data.path=m30k/en-de > logs/sr1.log 2>&1
